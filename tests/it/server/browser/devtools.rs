//! A browser without a window, told what to do by its debugging protocol.
//!
//! The protocol is spoken over a pipe: JSON, each message ended by a zero byte, on the descriptors 3 and 4
//! of the browser. So it takes neither a port nor a WebSocket.

use std::io::{self, BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;
use std::{env, fs};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tempfile::TempDir;

/// What browsers are called that speak the protocol.
const NAMES: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "chrome"];

/// After so long without an answer, a browser hangs.
const PATIENCE: Duration = Duration::from_secs(120);

pub(super) struct Browser {
    child: Child,
    commands: ChildStdin,
    messages: Receiver<Value>,
    session: Option<String>,
    calls: u64,
    events: Vec<Value>,
    _profile: TempDir,
}

impl Browser {
    /// A browser with an empty page; `None`, said loudly, where there is none.
    pub(super) fn start() -> Option<Self> {
        let Some(program) = program() else {
            assert!(env::var("CI").as_deref() != Ok("true"), "no browser found: install chromium");
            // Not by a macro, whose text would be kept back for tests that pass.
            let _ =
                writeln!(io::stderr(), "NOT TESTED IN A BROWSER: install chromium, or set CHROME");
            return None;
        };
        let profile = tempfile::tempdir().unwrap();
        let mut child = Command::new("sh")
            .args(["-c", r#"exec "$0" "$@" 3<&0 4>&1 </dev/null >/dev/null"#, &program])
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
            .args(["--hide-scrollbars", "--no-first-run", "--remote-debugging-pipe"])
            // Else what is typed before the first picture of a page is drawn is lost.
            .arg("--allow-pre-commit-input")
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (commands, answers) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (sender, messages) = channel();
        thread::spawn(move || pass_on(answers, &sender));
        let mut browser = Self {
            child,
            commands,
            messages,
            session: None,
            calls: 0,
            events: Vec::new(),
            _profile: profile,
        };
        browser.attach();
        Some(browser)
    }

    fn attach(&mut self) {
        let target = self.call("Target.createTarget", &json!({ "url": "about:blank" }));
        let target = json!({ "targetId": target["targetId"], "flatten": true });
        let session = self.call("Target.attachToTarget", &target);
        self.session = session["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log", "Accessibility", "DOM"] {
            self.call(&format!("{domain}.enable"), &json!({}));
        }
    }

    /// Calls a method and waits for its result.
    pub(super) fn call(&mut self, method: &str, params: &Value) -> Value {
        self.calls += 1;
        let mut call = json!({ "id": self.calls, "method": method, "params": params });
        if let Some(session) = &self.session {
            call["sessionId"] = json!(session);
        }
        self.commands.write_all(format!("{call}\0").as_bytes()).unwrap();
        loop {
            let message = self.message();
            if message["id"] == self.calls {
                assert!(message.get("error").is_none(), "{method}: {message}");
                return message["result"].clone();
            }
            self.events.push(message);
        }
    }

    fn message(&self) -> Value {
        let message = self.messages.recv_timeout(PATIENCE);
        message.unwrap_or_else(|error| panic!("the browser does not answer: {error}"))
    }

    /// Waits for the next event of a kind.
    fn await_event(&mut self, method: &str) {
        while !self.events.iter().any(|event| event["method"] == method) {
            let message = self.message();
            self.events.push(message);
        }
    }

    /// Opens an address, and waits until everything on it is there.
    pub(super) fn open(&mut self, url: &str) {
        self.events.clear();
        let opened = self.call("Page.navigate", &json!({ "url": url }));
        assert!(opened.get("errorText").is_none(), "{url}: {opened}");
        self.await_event("Page.loadEventFired");
    }

    /// Shows HTML as a page of this machine; others may not show what is on it.
    pub(super) fn show(&mut self, html: &str) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let length = html.len();
        let head = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: text/html; charset=utf-8";
        let answer = format!("{head}\r\nContent-Length: {length}\r\n\r\n{html}");
        thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let head = BufReader::new(&mut stream).lines().map_while(Result::ok);
                head.take_while(|line| !line.is_empty()).for_each(drop);
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        self.open(&url);
    }

    /// The value of an expression, or of the promise that it is.
    pub(super) fn eval(&mut self, expression: &str) -> Value {
        let params = json!({
            "expression": expression, "awaitPromise": true, "returnByValue": true, "userGesture": true
        });
        let result = self.call("Runtime.evaluate", &params);
        assert!(result.get("exceptionDetails").is_none(), "{expression}: {result}");
        result["result"]["value"].clone()
    }

    /// Waits until a condition holds, looking whenever the page changes.
    pub(super) fn until(&mut self, condition: &str) {
        let promise = format!(
            "new Promise(done => {{
                const look = () => {{ if ({condition}) {{ observer.disconnect(); done(true); }} }};
                const observer = new MutationObserver(look);
                const all = {{ subtree: true, childList: true, attributes: true, characterData: true }};
                observer.observe(document, all);
                document.addEventListener('load', look, true);
                document.addEventListener('focusin', look);
                look();
            }})"
        );
        assert_eq!(self.eval(&promise), true);
    }

    /// Types into a field.
    pub(super) fn type_text(&mut self, field: &str, text: &str) {
        self.eval(&format!("document.getElementById('{field}').focus()"));
        for c in text.chars() {
            self.call("Input.dispatchKeyEvent", &json!({ "type": "char", "text": c }));
        }
    }

    /// Presses Enter, and waits for the page that this leads to.
    pub(super) fn press_enter(&mut self) {
        self.events.clear();
        let key =
            json!({ "type": "keyDown", "key": "Enter", "text": "\r", "windowsVirtualKeyCode": 13 });
        self.call("Input.dispatchKeyEvent", &key);
        self.await_event("Page.loadEventFired");
    }

    /// What a reader of the page can read.
    pub(super) fn text(&mut self) -> String {
        self.eval("document.body.innerText").as_str().unwrap().to_owned()
    }

    /// Makes the window so wide, for readers who prefer a scheme of colours.
    pub(super) fn screen(&mut self, width: u32, scheme: &str) {
        let size = json!({
            "width": width, "height": 800, "deviceScaleFactor": 2, "mobile": width < 500
        });
        self.call("Emulation.setDeviceMetricsOverride", &size);
        let feature = json!({ "name": "prefers-color-scheme", "value": scheme });
        self.call("Emulation.setEmulatedMedia", &json!({ "features": [feature] }));
    }

    /// Keeps a picture of the whole page in the folder of cargo's temporary files, to be looked at.
    pub(super) fn screenshot(&mut self, name: &str) {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("screenshots");
        fs::create_dir_all(&folder).unwrap();
        let shot = self.call("Page.captureScreenshot", &json!({ "captureBeyondViewport": true }));
        let png = STANDARD.decode(shot["data"].as_str().unwrap()).unwrap();
        fs::write(folder.join(format!("{name}.png")), png).unwrap();
    }

    /// What the browser has complained of since the page was opened: exceptions, files that are missing,
    /// and what the page's policy forbids.
    pub(super) fn complaints(&self) -> Vec<String> {
        let kinds = ["Log.entryAdded", "Runtime.exceptionThrown"];
        let events = self.events.iter();
        let complaints = events.filter(|event| kinds.iter().any(|kind| event["method"] == *kind));
        complaints.map(|event| event["params"].to_string()).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Passes on every message until there are no more.
fn pass_on(answers: ChildStdout, sender: &Sender<Value>) {
    for message in BufReader::new(answers).split(0) {
        let Ok(message) = message else { return };
        let Ok(message) = serde_json::from_slice(&message) else { return };
        if sender.send(message).is_err() {
            return;
        }
    }
}

/// The browser of this machine.
fn program() -> Option<String> {
    let works = |name: &String| Command::new(name).arg("--version").output().is_ok();
    env::var("CHROME").ok().into_iter().chain(NAMES.map(str::to_owned)).find(works)
}
