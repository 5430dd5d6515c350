use crate::count::config_use::ConfigUse;
use crate::count::module_part::ModulePart;
use crate::count::waiting::WaitingTensors;
use crate::count::{Configs, CountedAs};
use crate::formats::{Dtype, TensorInfo};

use super::Module;

/// The name of a tensor, its dtype, and its expected class as text.
pub(super) type Case<'a> = (&'a str, Dtype, &'a str);

/// Checks the classes of all tensors of a model.
pub(super) fn check(config: &str, cases: &[Case<'_>]) {
    let configs = Configs::from_config_json(config.as_bytes()).unwrap();
    let mut waiting = WaitingTensors::default();
    for (name, dtype, _) in cases {
        waiting.push(&ModulePart::new(name, &tensor(dtype)));
    }
    for (name, dtype, expected) in cases {
        let found = classify(&configs, &waiting, name, &tensor(dtype));
        assert_eq!(found.to_string(), *expected, "{name} {dtype}");
        let tensor = tensor(dtype);
        let part = ModulePart::new(name, &tensor);
        let as_stored = Configs::default().classify(&part, &Module::default());
        let depends = ConfigUse::from_part(&part).depends;
        assert!(depends || found == as_stored, "{name} {dtype} depends on the configuration");
    }
}

fn tensor(dtype: &Dtype) -> TensorInfo {
    TensorInfo { dtype: dtype.clone(), shape: vec![12], data_offsets: (0, 0) }
}

fn classify(
    configs: &Configs,
    waiting: &WaitingTensors,
    name: &str,
    tensor: &TensorInfo,
) -> CountedAs {
    let mut found = None;
    let visit = |parts: &[(String, TensorInfo)]| {
        if parts.iter().any(|part| part.0 == name && part.1 == *tensor) {
            found =
                Some(configs.classify(&ModulePart::new(name, tensor), &Module::from_sorted(parts)));
        }
        Ok::<_, ()>(())
    };
    waiting.for_each_module(visit).unwrap();
    found.unwrap()
}
