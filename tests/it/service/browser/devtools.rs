//! A headless browser, controlled by its debugging protocol.
//!
//! The protocol runs over a pipe, so it needs neither a port nor a WebSocket: JSON messages that end with a
//! zero byte, on the file descriptors 3 and 4 of the browser.

use std::io::{BufRead, BufReader, Write};
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

use crate::support::program_is_missing;

/// The names of browsers that support the protocol.
const NAMES: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "chrome"];

/// The time to wait for a response of the browser.
const TIMEOUT: Duration = Duration::from_secs(120);

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
    /// Starts a browser with an empty page. Returns `None` with a message if no browser is installed.
    pub(super) fn start() -> Option<Self> {
        let Some(program) = program() else {
            program_is_missing("chromium, or set CHROME,", "the page");
            return None;
        };
        let profile = tempfile::tempdir().unwrap();
        let mut child = Command::new("sh")
            .args(["-c", r#"exec "$0" "$@" 3<&0 4>&1 </dev/null >/dev/null"#, &program])
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
            .args(["--hide-scrollbars", "--no-first-run", "--remote-debugging-pipe"])
            // Otherwise input before the first paint of a page is lost.
            .arg("--allow-pre-commit-input")
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (commands, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (sender, messages) = channel();
        thread::spawn(move || forward(output, &sender));
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
        let message = self.messages.recv_timeout(TIMEOUT);
        message.unwrap_or_else(|error| panic!("the browser does not answer: {error}"))
    }

    /// Waits for an event.
    fn await_event(&mut self, method: &str) {
        while !self.events.iter().any(|event| event["method"] == method) {
            let message = self.message();
            self.events.push(message);
        }
    }

    /// Opens a URL, and waits until the page is loaded.
    pub(super) fn open(&mut self, url: &str) {
        self.events.clear();
        let opened = self.call("Page.navigate", &json!({ "url": url }));
        assert!(opened.get("errorText").is_none(), "{url}: {opened}");
        self.await_event("Page.loadEventFired");
    }

    /// Shows HTML from a local server. A page of another origin could not load local badges.
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

    /// Evaluates an expression, and awaits it if it is a promise.
    pub(super) fn eval(&mut self, expression: &str) -> Value {
        let params = json!({
            "expression": expression, "awaitPromise": true, "returnByValue": true, "userGesture": true
        });
        let result = self.call("Runtime.evaluate", &params);
        assert!(result.get("exceptionDetails").is_none(), "{expression}: {result}");
        result["result"]["value"].clone()
    }

    /// Waits until a condition holds, and checks it whenever the page changes.
    pub(super) fn until(&mut self, condition: &str) {
        let promise = format!(
            "new Promise(done => {{
                const check = () => {{ if ({condition}) {{ observer.disconnect(); done(true); }} }};
                const observer = new MutationObserver(check);
                const all = {{ subtree: true, childList: true, attributes: true, characterData: true }};
                observer.observe(document, all);
                document.addEventListener('load', check, true);
                document.addEventListener('focusin', check);
                check();
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

    /// Presses Enter, and waits for the next page.
    pub(super) fn press_enter(&mut self) {
        self.events.clear();
        self.submit();
        self.await_event("Page.loadEventFired");
    }

    /// Presses Enter on a page whose script handles it.
    pub(super) fn submit(&mut self) {
        let key =
            json!({ "type": "keyDown", "key": "Enter", "text": "\r", "windowsVirtualKeyCode": 13 });
        self.call("Input.dispatchKeyEvent", &key);
    }

    /// Returns the visible text of the page.
    pub(super) fn text(&mut self) -> String {
        self.eval("document.body.innerText").as_str().unwrap().to_owned()
    }

    /// Sets the width of the window in pixels, and the preferred color scheme.
    pub(super) fn screen(&mut self, width: u32, scheme: &str) {
        let size = json!({
            "width": width, "height": 800, "deviceScaleFactor": 2, "mobile": width < 500
        });
        self.call("Emulation.setDeviceMetricsOverride", &size);
        let feature = json!({ "name": "prefers-color-scheme", "value": scheme });
        self.call("Emulation.setEmulatedMedia", &json!({ "features": [feature] }));
    }

    /// Saves a picture of the whole page below `CARGO_TARGET_TMPDIR`.
    pub(super) fn screenshot(&mut self, name: &str) {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("screenshots");
        fs::create_dir_all(&folder).unwrap();
        let shot = self.call("Page.captureScreenshot", &json!({ "captureBeyondViewport": true }));
        let png = STANDARD.decode(shot["data"].as_str().unwrap()).unwrap();
        fs::write(folder.join(format!("{name}.png")), png).unwrap();
    }

    /// Returns exceptions, missing files and violations of the content security policy since the page was
    /// opened.
    pub(super) fn problems(&self) -> Vec<String> {
        let kinds = ["Log.entryAdded", "Runtime.exceptionThrown"];
        let events = self.events.iter();
        let problems = events.filter(|event| kinds.iter().any(|kind| event["method"] == *kind));
        problems.map(|event| event["params"].to_string()).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Forwards messages until the browser ends.
fn forward(output: ChildStdout, sender: &Sender<Value>) {
    for message in BufReader::new(output).split(0) {
        let Ok(message) = message else { return };
        let Ok(message) = serde_json::from_slice(&message) else { return };
        if sender.send(message).is_err() {
            return;
        }
    }
}

/// Returns the name of an installed browser.
fn program() -> Option<String> {
    let works = |name: &String| Command::new(name).arg("--version").output().is_ok();
    env::var("CHROME").ok().into_iter().chain(NAMES.map(str::to_owned)).find(works)
}
