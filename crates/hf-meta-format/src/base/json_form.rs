//! The JSON form of results: one declaration per type defines its serialization and its schema.

/// Writes an entry. One with a `?` is left out if it has no value.
#[doc(hidden)]
#[macro_export]
macro_rules! json_entry {
    ($map:ident, $key:literal : $value:expr) => {
        serde::ser::SerializeMap::serialize_entry(&mut $map, $key, &$value)?
    };
    ($map:ident, $key:literal ? $value:expr) => {
        if let Some(value) = $value {
            serde::ser::SerializeMap::serialize_entry(&mut $map, $key, &value)?;
        }
    };
}

/// Returns the key of an entry, `true` if the entry is required, and the schema of its value, whose type is inferred. The
/// value is not computed.
#[cfg(feature = "schema")]
#[doc(hidden)]
#[macro_export]
macro_rules! json_property {
    ($generator:ident, $object:ident: $type:ty, $key:literal : $value:expr) => {{
        let found = None::<&'static $type>.map(|$object| $crate::base::schema::type_of(&$value));
        ($key, true, $crate::base::schema::schema_of(found, $generator))
    }};
    ($generator:ident, $object:ident: $type:ty, $key:literal ? $value:expr) => {{
        let found = None::<&'static $type>.and_then(|$object| match $value {
            Some(value) => Some($crate::base::schema::type_of(&value)),
            None => None,
        });
        ($key, false, $crate::base::schema::schema_of(found, $generator))
    }};
}

/// Implements `Serialize` as an object with these entries, in this order, and the schema of the object.
#[doc(hidden)]
#[macro_export]
macro_rules! serialize_as_objects {
    ($($type:ty, $object:ident { $($key:literal $mark:tt $value:expr,)+ })+) => {$(
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let $object = self;
                let mut map = serde::Serializer::serialize_map(serializer, None)?;
                $($crate::json_entry!(map, $key $mark $value);)+
                serde::ser::SerializeMap::end(map)
            }
        }

        #[cfg(feature = "schema")]
        impl schemars::JsonSchema for $type {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($type).trim_end_matches("<'_>").into()
            }

            #[allow(unused_variables, reason = "a value may be a constant")]
            fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                $crate::base::schema::object_schema([$($crate::json_property!(generator, $object: $type, $key $mark $value)),+])
            }
        }
    )+};
}
