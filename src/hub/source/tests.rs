use super::*;

#[test]
fn every_spelling_of_a_repository_is_parsed() {
    let cases = [
        ("gpt2", "gpt2"),
        (" bigscience/bloom ", "bigscience/bloom"),
        ("bigscience/bloom@v1.0", "bigscience/bloom@v1.0"),
        ("bigscience/bloom@refs/pr/1", "bigscience/bloom@refs/pr/1"),
        ("datasets/org/name", "datasets/org/name"),
        ("org/name-GGUF:Q4_K_M", "hf://org/name-GGUF@main/Q4_K_M"),
        ("org/name-GGUF:Q9_9", "hf://org/name-GGUF@main/Q9_9"),
        ("org/name-GGUF@v1:q8_0", "hf://org/name-GGUF@v1/q8_0"),
        ("hf.co/org/name-GGUF:Q4_K_M", "hf://org/name-GGUF@main/Q4_K_M"),
        (
            "https://huggingface.co/org/x-GGUF?show_file_info=x-Q8_0.gguf",
            "hf://org/x-GGUF@main/x-Q8_0.gguf",
        ),
        (
            "https://huggingface.co/org/x-GGUF/tree/main/UD?show_file_info=UD%2Fx-Q8_0.gguf",
            "hf://org/x-GGUF@main/UD/x-Q8_0.gguf",
        ),
        ("https://huggingface.co/org/x?show_file_info=README.md", "org/x"),
        ("hf://gpt2", "gpt2"),
        ("hf://gpt2@main/model.safetensors", "hf://gpt2@main/model.safetensors"),
        ("hf://org/name/7b/x.safetensors", "hf://org/name@main/7b/x.safetensors"),
        ("hf://org/name@refs/pr/1/7b", "hf://org/name@refs%2Fpr%2F1/7b"),
        ("hf://org/name@refs%2Fpr%2F1/7b/", "hf://org/name@refs%2Fpr%2F1/7b"),
        ("hf://org/name/a@b.safetensors", "hf://org/name@main/a@b.safetensors"),
        ("hf://org/name@a%2Fb/50%25.safetensors", "hf://org/name@a%2Fb/50%25.safetensors"),
        ("HTTPS://huggingface.co/gpt2", "gpt2"),
        ("https://huggingface.co/org/name/blob/main/README.md", "org/name@main"),
        ("hf://models/org/name", "org/name"),
        ("hf://datasets/org/name/x.safetensors", "hf://datasets/org/name@main/x.safetensors"),
        ("https://huggingface.co/gpt2", "gpt2"),
        ("https://huggingface.co/gpt2/", "gpt2"),
        ("https://hf.co/org/name", "org/name"),
        ("https://huggingface.co/org/name?library=transformers#files", "org/name"),
        ("https://huggingface.co/org/name/discussions", "org/name"),
        ("https://huggingface.co/org/name/discussions/new", "org/name"),
        ("https://huggingface.co/org/name/discussions/3", "org/name@refs/pr/3"),
        ("https://huggingface.co/org/name/discussions/3/files", "org/name@refs/pr/3"),
        ("https://huggingface.co/gpt2/discussions/3", "gpt2@refs/pr/3"),
        ("https://huggingface.co/org/name/commit/abc", "org/name@abc"),
        (
            "https://huggingface.co/org/name/commits/v1/x.safetensors",
            "hf://org/name@v1/x.safetensors",
        ),
        ("https://huggingface.co/org/name/blame/v1/README.md", "org/name@v1"),
        ("huggingface.co/gpt2", "gpt2"),
        ("hf.co/org/name/tree/main/7b", "hf://org/name@main/7b"),
        ("HuggingFace.co/org/name/blob/main/x.safetensors", "hf://org/name@main/x.safetensors"),
        ("https://huggingface.co/gpt2/tree/main", "gpt2@main"),
        ("https://huggingface.co/org/name/tree", "org/name"),
        ("https://huggingface.co/org/name/tree/main", "org/name@main"),
        ("https://huggingface.co/org/name/tree/main/7b/1", "hf://org/name@main/7b/1"),
        ("https://huggingface.co/org/name/tree/refs%2Fpr%2F1/7b", "hf://org/name@refs%2Fpr%2F1/7b"),
        (
            "https://huggingface.co/org/name/blob/main/x%20y.safetensors",
            "hf://org/name@main/x y.safetensors",
        ),
        (
            "https://huggingface.co/org/name/resolve/main/x.safetensors?download=true",
            "hf://org/name@main/x.safetensors",
        ),
        (
            "https://huggingface.co/datasets/org/name/blob/main/x.safetensors",
            "hf://datasets/org/name@main/x.safetensors",
        ),
    ];
    for (text, shown) in cases {
        let source: Source = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
        assert!(matches!(source, Source::Repo { .. }), "{text}");
        assert_eq!(source.to_string(), shown, "{text}");
        let again: Source = shown.parse().unwrap();
        assert_eq!(
            (again.clone().with_revision("x"), again.to_string()),
            (source.with_revision("x"), shown.to_owned())
        );
    }
}

#[test]
fn urls_of_the_endpoint_are_repositories() {
    let endpoint = Endpoint::parse("https://repo.example/api/hf").unwrap();
    let cases = [
        ("https://repo.example/api/hf/org/name/tree/main", "org/name@main"),
        ("https://huggingface.co/org/name", "org/name"),
    ];
    for (text, shown) in cases {
        let source = Source::parse(text, &endpoint).unwrap();
        assert!(matches!(source, Source::Repo { .. }));
        assert_eq!(source.to_string(), shown);
    }
    let elsewhere = Source::parse("https://repo.example/files/x.safetensors", &endpoint).unwrap();
    assert!(matches!(elsewhere, Source::Url(_)));
}

#[test]
fn urls_of_other_servers_are_files() {
    for text in [
        "https://example.org/x.safetensors",
        "http://127.0.0.1:1/a/model.safetensors.index.json?sig=s3cr3t",
    ] {
        let source: Source = text.parse().unwrap();
        assert!(matches!(source, Source::Url(_)), "{text}");
        assert!(!source.to_string().contains("s3cr3t"));
    }
}

#[test]
fn paths_and_file_urls_are_local() {
    let cases = [
        (".", PathBuf::from(".")),
        ("./gpt2", PathBuf::from("./gpt2")),
        ("/models/gpt2", PathBuf::from("/models/gpt2")),
        ("gpt2/", PathBuf::from("gpt2/")),
        ("org/model/", PathBuf::from("org/model/")),
        ("org/model@main/", PathBuf::from("org/model@main/")),
        ("runs/last/model/", PathBuf::from("runs/last/model/")),
        ("~bob/x", PathBuf::from("~bob/x")),
        ("model.safetensors", PathBuf::from("model.safetensors")),
        ("x.index.json", PathBuf::from("x.index.json")),
        ("a/b/model.safetensors.index.json", PathBuf::from("a/b/model.safetensors.index.json")),
        ("file:///models/gpt%202", PathBuf::from("/models/gpt 2")),
    ];
    for (text, path) in cases {
        assert_eq!(text.parse(), Ok(Source::Local(path)), "{text}");
    }
}

#[test]
fn a_tilde_is_the_home_folder() {
    let home = std::env::home_dir().unwrap();
    for (text, path) in [("~", home.clone()), ("~/", home.clone()), ("~/gpt2", home.join("gpt2"))] {
        assert_eq!(text.parse(), Ok(Source::Local(path)), "{text}");
    }
}

#[test]
fn other_text_is_an_error() {
    let cases = [
        "",
        "a/b/c",
        "gpt2@",
        "@main",
        "org/name@\n",
        "hf://",
        "hf://org/name@",
        "hf://org/name@/x",
        "hf://org/name@main/../x",
        "hf://org/name@main/%2e%2e/x",
        "hf://org/name/%ff",
        "ftp://x/y",
        "https://",
        "https://huggingface.co",
        "huggingface.co",
        "hf.co/",
        "https://huggingface.co/org/name/blob/main/..%2Fx.safetensors",
        "s3://bucket/x",
        "file://x",
    ];
    for text in cases {
        assert!(text.parse::<Source>().is_err(), "{text:?}: {:?}", text.parse::<Source>());
    }
}

#[test]
fn other_stores_are_errors_that_say_why() {
    for (text, reason) in [
        ("hf://buckets/org/name", "buckets of the Hub"),
        ("hf://buckets/org/name/folder", "buckets of the Hub"),
        ("https://huggingface.co/buckets/org/name", "buckets of the Hub"),
        ("ms://org/name", "repositories of ModelScope"),
    ] {
        let error = text.parse::<Source>().unwrap_err().to_string();
        assert!(error.contains(reason), "{text}: {error}");
    }
    assert!("hf://buckets/name".parse::<Source>().is_ok(), "a repository of the user `buckets`");
}
