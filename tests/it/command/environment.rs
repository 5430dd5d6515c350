//! Environment variables, and files of the machine.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;

use super::{CommandOutput, hf_meta, run};
use crate::hub::LocalHub;
use crate::support::{self, file_start};

#[test]
fn the_token_is_taken_from_the_environment() {
    let hub = LocalHub::builder().repo(support::sharded("org/gated").gated()).token("hf_good");
    let hub = hub.start().unwrap();
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("token"), "hf_good\n").unwrap();
    std::fs::write(home.path().join("other"), "hf_good").unwrap();
    let other = home.path().join("other");
    let cases: [(&[(&str, &str)], i32); 7] = [
        (&[], 3),
        (&[("HF_TOKEN", "hf_good")], 0),
        (&[("HF_TOKEN", " hf_good\n")], 0),
        (&[("HF_HOME", home.path().to_str().unwrap())], 0),
        (&[("HF_TOKEN_PATH", other.to_str().unwrap())], 0),
        (&[("HF_TOKEN", "hf_good"), ("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1")], 3),
        (&[("HF_TOKEN", "hf_wrong"), ("HF_HOME", home.path().to_str().unwrap())], 3),
    ];
    for (variables, code) in cases {
        let mut command = hf_meta(hub.endpoint());
        let ran = CommandOutput::new(command.envs(variables.iter().copied()).arg("org/gated"));
        assert_eq!(ran.code, code, "{variables:?}");
    }
    let mut flag = hf_meta(hub.endpoint());
    flag.args(["org/gated", "--token", "hf_good"]).env("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1");
    assert_eq!(CommandOutput::new(&mut flag).code, 0);
}

#[test]
fn a_rejected_token_is_reported_with_its_origin() {
    let hub = LocalHub::builder()
        .repo(support::sharded("org/gated").gated())
        .repo(support::sharded("org/public"))
        .token("hf_good");
    let hub = hub.start().unwrap();
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("token");
    std::fs::write(&file, "hf_old\n").unwrap();
    let home = [("HF_HOME", home.path().to_str().unwrap())];
    let flag: [(&str, &str); 0] = [];
    let ran = |args: &[&str], variables: &[(&str, &str)]| {
        let mut command = hf_meta(hub.endpoint());
        CommandOutput::new(command.envs(variables.iter().copied()).args(args)).stderr
    };
    for (args, variables, place) in [
        (&["--token", "hf_old"][..], &flag[..], "--token"),
        (&[], &[("HF_TOKEN", "hf_old")], "HF_TOKEN"),
        (&[], &[("HUGGING_FACE_HUB_TOKEN", "hf_old")], "HUGGING_FACE_HUB_TOKEN"),
        (&[], &home, file.to_str().unwrap()),
    ] {
        let stderr = ran(&[&["org/gated"], args].concat(), variables);
        let hint = format!("  help: the token comes from {place}; create a new one at ");
        assert!(stderr.contains(&hint), "{stderr}");
    }
    let warning = ran(&["org/public"], &[("HF_TOKEN", "hf_old")]);
    let expected = "warning: the Hub rejected the token; reading without it\n";
    assert_eq!(warning, expected);
    let malformed = ran(&["org/public"], &[("HF_TOKEN", "hf_\u{1}")]);
    assert!(malformed.contains("help: the token comes from HF_TOKEN; set it"), "{malformed}");
}

/// Requests go through the proxy of the environment, except to hosts in `no_proxy`.
#[test]
fn the_proxy_is_taken_from_the_environment() {
    let hub = LocalHub::start([support::sharded("org/model")]).unwrap();
    let nobody = "http://127.0.0.1:1";
    let proxied = || {
        let mut command = hf_meta(hub.endpoint());
        command.env("http_proxy", nobody).args(["org/model", "--retries", "0"]);
        command
    };
    let refused = CommandOutput::new(&mut proxied());
    assert_eq!(refused.code, 3);
    let named = format!("via proxy `{nobody}/`");
    assert!(refused.stderr.contains(&named), "{}", refused.stderr);
    let unusable = CommandOutput::new(proxied().env("http_proxy", "http://[bad"));
    assert_eq!((unusable.code, hub.log().len()), (2, 0));
    assert!(unusable.stderr.contains("invalid proxy in `http_proxy`"));
    for excluded in ["127.0.0.1", "*"] {
        assert_eq!(CommandOutput::new(proxied().env("no_proxy", excluded)).code, 0, "{excluded}");
    }
}

/// Only requests need the endpoint and the proxy.
#[test]
fn invalid_settings_of_the_network_do_not_matter_for_local_files() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("model.safetensors");
    std::fs::write(&file, file_start("{}")).unwrap();
    for variable in [("HF_ENDPOINT", "junk"), ("http_proxy", "ftp://proxy.example")] {
        let ran = |args: &[&str]| {
            let mut command = hf_meta("http://127.0.0.1:1");
            CommandOutput::new(command.envs([variable]).args(args))
        };
        assert_eq!(ran(&[file.to_str().unwrap()]).code, 0, "{variable:?}");
        let offline = ran(&["gpt2", "--offline"]).stderr;
        assert!(offline.contains("is not in the cache"), "{offline}");
        let online = ran(&["gpt2"]);
        assert!(online.code == 2 && online.stderr.contains("  help: set "), "{}", online.stderr);
        assert_eq!(ran(&["census", "list", "-o", "/nonexistent/x"]).code, 2, "{variable:?}");
    }
}

/// Starts a SOCKS5 proxy without authentication. Returns its address, and the requests for connections.
fn socks_proxy() -> (String, mpsc::Receiver<[u8; 10]>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (sender, requests) = mpsc::channel();
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let sender = sender.clone();
            thread::spawn(move || serve_socks(client, &sender));
        }
    });
    (address, requests)
}

fn serve_socks(mut client: TcpStream, sender: &mpsc::Sender<[u8; 10]>) -> io::Result<()> {
    let mut greeting = [0; 2];
    client.read_exact(&mut greeting)?;
    client.read_exact(&mut vec![0; greeting[1].into()])?;
    client.write_all(&[5, 0])?;
    // The version, the command, a reserved byte, the type of an IPv4 address, the address and the port.
    let mut request = [0; 10];
    client.read_exact(&mut request)?;
    let [.., a, b, c, d, high, low] = request;
    let server = TcpStream::connect((Ipv4Addr::new(a, b, c, d), u16::from_be_bytes([high, low])))?;
    client.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0])?;
    let _ = sender.send(request);
    let (mut from_server, mut to_client) = (server.try_clone()?, client.try_clone()?);
    thread::spawn(move || io::copy(&mut from_server, &mut to_client));
    io::copy(&mut client, &mut &server).map(drop)
}

#[test]
fn requests_go_through_a_socks_proxy() {
    let hub = LocalHub::start([support::sharded("org/model")]).unwrap();
    let (address, requests) = socks_proxy();
    let mut command = hf_meta(hub.endpoint());
    command.env("ALL_PROXY", format!("socks5://{address}")).args(["org/model", "--format", "csv"]);
    let row = CommandOutput::new(&mut command).data();
    assert!(row.contains("org/model,2,true,"), "{row}");
    assert_eq!(requests.recv().unwrap()[..4], [5, 1, 0, 1]);
}

#[test]
fn an_agent_gets_complete_tables_with_tabs() {
    let hub = support::fixtures_hub();
    let ran = |variable: (&str, &str), args: &[&str]| {
        let mut command = hf_meta(hub.endpoint());
        command.envs([variable]).args(args);
        CommandOutput::new(&mut command).data()
    };
    let repos = ["gpt2", "openai/gpt-oss-20b"];
    let tsv = run(&hub, &[&repos[..], &["--format", "tsv"]].concat()).data();
    for variable in [("AI_AGENT", "x"), ("AGENT", "x")] {
        assert_eq!(ran(variable, &repos), tsv, "{variable:?}");
    }
    let table = run(&hub, &repos).data();
    assert_eq!(ran(("AI_AGENT", " "), &repos), table);
    let explained = ran(("AI_AGENT", "x"), &["openai/gpt-oss-20b", "--explain"]);
    assert!(explained.contains("\ndtype\ttensors\telements\tparameters\tcounted\n"), "{explained}");
}

#[test]
fn an_invalid_endpoint_is_shown_without_its_secrets() {
    for (endpoint, shown) in [
        ("huggingface.co", "`huggingface.co`"),
        ("htps://user:s3cr3t@hub.example?x=s3cr3t", "`…@hub.example`"),
    ] {
        let ran = CommandOutput::new(hf_meta(endpoint).arg("org/model"));
        assert_eq!(ran.code, 2);
        assert!(ran.stderr.contains(&format!("cannot use the endpoint {shown}")), "{}", ran.stderr);
        assert!(!ran.stderr.contains("s3cr3t"), "{}", ran.stderr);
    }
}

#[test]
fn headers_are_cached_unless_the_cache_is_off() {
    let hub = LocalHub::start([support::sharded("org/model")]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let ran = |args: &[&str]| {
        hub.clear_log();
        let mut command = hf_meta(hub.endpoint());
        let data =
            CommandOutput::new(command.env("HF_META_CACHE", folder.path()).args(args)).data();
        (data, hub.log().len())
    };
    let place = folder.path().display();
    let [model, cold] = [["org/model", "--json"], ["org/model", "--no-cache"]];
    let requests = ran(&cold).1;
    assert_eq!(ran(&["cache", "info"]).0, format!("{place}\n0 B in 0 files (limit: 268.4 MB)\n"));
    assert_eq!([ran(&model).1, ran(&model).1, ran(&cold).1], [requests, 1, requests]);
    let info = ran(&["cache", "info"]).0;
    let (_, size) = info.trim_end().split_once('\n').unwrap();
    let size = size.strip_suffix(" (limit: 268.4 MB)").unwrap();
    assert!(size.ends_with(" in 3 files"), "{info}");
    let cleared = ran(&["cache", "clear"]).0;
    assert_eq!(cleared, format!("deleted {size} from {place}\n"));
    assert_eq!(ran(&model).1, requests);
    let off = CommandOutput::new(hf_meta(hub.endpoint()).args(["cache", "info"])).data();
    assert_eq!(
        off,
        "no disk cache: it is disabled by HF_META_CACHE, or there is no home directory\n"
    );
}

/// The cache needs no client, so wrong settings of the Hub do not matter.
#[test]
fn the_cache_is_managed_without_a_client() {
    let folder = tempfile::tempdir().unwrap();
    for action in ["info", "clear"] {
        let mut command = hf_meta("junk");
        command.env("HF_META_CACHE", folder.path()).env("HF_TOKEN", "hf_\n\u{1}");
        assert_eq!(CommandOutput::new(command.args(["cache", action])).code, 0);
        let help = CommandOutput::new(hf_meta("junk").args(["cache", action, "--help"])).data();
        assert!(!help.contains("--token") && !help.contains("--verbose"), "{help}");
    }
}

#[test]
fn an_unreadable_folder_is_named() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut command = hf_meta("http://127.0.0.1:1");
    command.env("HF_META_CACHE", file.path()).args(["cache", "info"]);
    let CommandOutput { code, stderr, .. } = CommandOutput::new(&mut command);
    let expected = format!("error: failed to read the cache `{}`", file.path().display());
    assert!(code == 4 && stderr.starts_with(&expected), "{code} {stderr}");
}

/// Names without a folder lie in the working folder, which has no name.
#[test]
fn shards_and_other_sets_are_found_in_the_working_folder() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["m-00001-of-00002", "m-00002-of-00002", "other"] {
        let header = format!(r#"{{"{name}":{{"dtype":"BOOL","shape":[1],"data_offsets":[0,1]}}}}"#);
        let file = folder.path().join(format!("{name}.safetensors"));
        std::fs::write(file, [file_start(&header), vec![0]].concat()).unwrap();
    }
    let in_folder = |args: &[&str]| {
        let mut command = hf_meta("http://127.0.0.1:1");
        CommandOutput::new(command.current_dir(folder.path()).args(args)).data()
    };
    let shards = in_folder(&["m-*-of-00002.safetensors", "--json", "--summary"]);
    assert!(shards.contains(r#""parameterTotal":2"#), "{shards}");
    let sets = in_folder(&["other.safetensors", "--sets", "--json", "--summary"]);
    assert!(sets.contains("m-*-of-00002.safetensors"), "{sets}");
}

#[test]
fn http_works_on_a_machine_without_certificates() {
    let hub = LocalHub::start([support::sharded("org/model")]).unwrap();
    let none = [("SSL_CERT_FILE", "/dev/null"), ("SSL_CERT_DIR", "/nonexistent")];
    assert_eq!(CommandOutput::new(hf_meta(hub.endpoint()).envs(none).arg("org/model")).code, 0);
}

/// Reads from the Hub's cache on disk, by flag or by environment variable.
#[test]
fn offline_mode_reads_only_from_disk() {
    /// Environment, arguments, and the exit status.
    type Case<'a> = (&'a [(&'a str, &'a str)], &'a [&'a str], i32);
    let home = tempfile::tempdir().unwrap();
    let hub = home.path().join("hub/models--org--model");
    let commit = "1".repeat(40);
    for (path, content) in [
        ("refs/main".to_owned(), commit.clone().into_bytes()),
        (
            format!("snapshots/{commit}/any.safetensors"),
            file_start(r#"{"x":{"dtype":"BOOL","shape":[0],"data_offsets":[0,0]}}"#),
        ),
    ] {
        std::fs::create_dir_all(hub.join(&path).parent().unwrap()).unwrap();
        std::fs::write(hub.join(&path), content).unwrap();
    }
    let [home, cache] = [home.path().to_owned(), home.path().join("hub")]
        .map(|path| path.to_str().unwrap().to_owned());
    let cases: [Case; 8] = [
        (&[("HF_HOME", &home)], &["--offline"], 0),
        (&[("HF_HOME", &home), ("HF_HUB_OFFLINE", "1")], &[], 0),
        (&[("HF_HOME", &home), ("HF_HUB_OFFLINE", "True")], &[], 0),
        (&[("HF_HUB_CACHE", &cache), ("TRANSFORMERS_OFFLINE", "yes")], &[], 0),
        (&[("HUGGINGFACE_HUB_CACHE", &cache), ("HF_HUB_OFFLINE", "on")], &[], 0),
        (
            &[("HF_HOME", &home), ("HF_HUB_OFFLINE", "0"), ("TRANSFORMERS_OFFLINE", "1")],
            &["--retries", "0"],
            3,
        ),
        (&[("HF_HOME", &home)], &["--retries", "0"], 3),
        (&[("HF_HUB_OFFLINE", "1")], &[], 3),
    ];
    for (variables, args, code) in cases {
        let mut command = hf_meta("http://127.0.0.1:1");
        let ran =
            CommandOutput::new(command.envs(variables.iter().copied()).arg("org/model").args(args));
        assert_eq!(ran.code, code, "{variables:?}: {}", ran.stderr);
        assert_eq!(ran.stdout.contains(&commit), code == 0, "{variables:?}");
    }
    let verify = ["verify", "org/none", "--offline"];
    let verified = CommandOutput::new(hf_meta("http://127.0.0.1:1").args(verify)).stderr;
    assert!(verified.contains("help: offline, only downloaded files are verified"), "{verified}");
    let missing = CommandOutput::new(hf_meta("http://127.0.0.1:1").args(["org/none", "--offline"]));
    assert!(
        missing.stderr.contains("help: run `hf download org/none` to download it"),
        "{}",
        missing.stderr
    );
}
