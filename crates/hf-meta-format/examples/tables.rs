//! Prints the packed tables, for programs that are built without the feature `tables`.

fn main() {
    print!("{}", include_str!(concat!(env!("OUT_DIR"), "/tables.txt")));
}
