use super::*;

/// Returns the modules of `F32` tensors, one per line: name, tensors, elements.
fn shown(tensors: &[(&str, &[u64])]) -> Vec<String> {
    let tensors = tensors.iter().map(|(name, shape)| {
        let bytes = shape.iter().product::<u64>() * 4;
        (*name, TensorInfo::new(Dtype::F32, shape.to_vec(), (0, bytes)))
    });
    let mut out = Vec::new();
    list(&Tree::from_tensors(tensors).modules, 0, &mut out);
    out
}

fn list(modules: &[TreeModule], indent: usize, out: &mut Vec<String>) {
    for TreeModule { name, tensors, elements, content, .. } in modules {
        out.push(format!("{:indent$}{name} {tensors} {elements}", ""));
        if let TreeContent::Modules(inner) = content {
            list(inner, indent + 2, out);
        }
    }
}

#[test]
fn identical_layers_are_folded_into_one() {
    let tensors: [(&str, &[u64]); 7] = [
        ("wte.weight", &[100, 8]),
        ("h.0.ln.weight", &[8]),
        ("h.0.mlp.weight", &[8, 8]),
        ("h.10.mlp.weight", &[8, 8]),
        ("h.10.ln.weight", &[8]),
        ("h.1.mlp.weight", &[8, 8]),
        ("h.1.ln.weight", &[8]),
    ];
    let lines = ["h.[0-1,10] 6 216", "  ln.weight 3 24", "  mlp.weight 3 192", "wte.weight 1 800"];
    assert_eq!(shown(&tensors), lines);
}

/// Counts cover all layers, but repeats are counted within one layer.
#[test]
fn repeats_are_counted_within_one_module() {
    let names: Vec<_> = (0..3)
        .flat_map(|layer| (0..8).map(move |at| format!("h.{layer}.experts.{at}.w")))
        .chain((0..3).map(|layer| format!("h.{layer}.norm")))
        .collect();
    let tensor = TensorInfo::new(Dtype::U8, vec![1], (0, 1));
    let tree = Tree::from_tensors(names.iter().map(|name| (&**name, tensor.clone())));
    let [layers] = &tree.modules[..] else { panic!("{tree:?}") };
    assert_eq!((&*layers.name, layers.repeats, layers.tensors), ("h.[0-2]", 3, 27));
    let TreeContent::Modules(inner) = &layers.content else { panic!("{layers:?}") };
    let inner: Vec<_> =
        inner.iter().map(|part| (&*part.name, part.repeats, part.tensors)).collect();
    assert_eq!(inner, [("experts.[0-7].w", 8, 24), ("norm", 1, 3)]);
}

#[test]
fn layers_that_differ_are_not_folded() {
    let tensors: [(&str, &[u64]); 6] = [
        ("h.0.a", &[8]),
        ("h.1.a", &[9]),
        ("h.2.a", &[8]),
        ("h.3.a", &[8]),
        ("h.3.b", &[8]),
        ("h.x.a", &[8]),
    ];
    let lines = ["h 6 49", "  [0,2].a 2 16", "  1.a 1 9", "  3.{a,b} 2 16", "  x.a 1 8"];
    assert_eq!(shown(&tensors), lines);
}

#[test]
fn identical_tensors_of_different_names_are_folded_into_one() {
    let tensors: [(&str, &[u64]); 7] = [
        ("q.weight", &[8]),
        ("k.weight", &[8]),
        ("v.weight", &[9]),
        ("e", &[7]),
        ("d", &[7]),
        ("b", &[7]),
        ("a", &[7]),
    ];
    assert_eq!(shown(&tensors), ["{a,b,d,e} 4 28", "{k,q}.weight 2 16", "v.weight 1 9"]);
    let five: [(&str, &[u64]); 5] =
        [("a", &[7]), ("b", &[7]), ("c", &[7]), ("d", &[7]), ("e", &[7])];
    assert_eq!(shown(&five), ["{a,b,c,d,+1} 5 35"]);
}

#[test]
fn a_tensor_may_have_the_name_of_a_module() {
    let tensors: [(&str, &[u64]); 4] = [("a", &[1]), ("a.b", &[2]), ("a.b.c", &[3]), ("", &[4])];
    assert_eq!(shown(&tensors), [" 1 4", "a 1 1", "a 2 5", "  b 1 2", "  b.c 1 3"]);
    assert_eq!(shown(&[]), [""; 0]);
}

/// Names with the deepest nesting that a header allows must not overflow the stack.
#[test]
fn the_depth_of_a_tree_is_bounded() {
    let names: Vec<_> = (0..2_000).map(|depth| "a.".repeat(depth)).collect();
    let tensor = TensorInfo::new(Dtype::U8, vec![1], (0, 1));
    let tree = Tree::from_tensors(names.iter().map(|name| (&**name, tensor.clone())));
    assert_eq!(tree.modules.iter().map(|module| module.tensors).sum::<u64>(), 2_000);
}
