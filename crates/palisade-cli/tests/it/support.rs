//! A folder to work in, and the binary to run there, to its end or as a service.

use std::{
    fmt, fs,
    io::{BufRead as _, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc,
    time::Duration,
};

use tempfile::TempDir;

/// A pod that the restricted level allows.
pub(crate) const GOOD: &str = "\
apiVersion: v1
kind: Pod
metadata:
  name: good
spec:
  securityContext:
    runAsNonRoot: true
    seccompProfile:
      type: RuntimeDefault
  containers:
    - name: web
      image: nginx
      securityContext:
        allowPrivilegeEscalation: false
        capabilities:
          drop: [ALL]
";

/// A pod with one mistake at the baseline level.
pub(crate) const PRIVILEGED: &str = "\
apiVersion: v1
kind: Pod
metadata:
  name: bad
  namespace: shop
spec:
  containers:
    - name: web
      securityContext:
        privileged: true
      image: nginx
";

/// What kubectl prints on stdout and stderr for an input; it must succeed.
pub(crate) fn kubectl(kubeconfig: &Path, arguments: &[&str], input: &str) -> (String, String) {
    let mut kubectl = Command::new("kubectl")
        .args(arguments)
        .env("KUBECONFIG", kubeconfig)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("kubectl is installed by `cargo xtask setup`");
    kubectl.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = kubectl.wait_with_output().unwrap();
    let printed = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let [out, err] = printed;
    assert!(output.status.success(), "{arguments:?}: {out}{err}");
    (out, err)
}

/// A folder with manifests.
pub(crate) struct Project {
    folder: TempDir,
}

impl Project {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    /// A folder with one file, `pod.yaml`.
    pub(crate) fn with(text: &str) -> Self {
        let project = Self::new();
        project.file("pod.yaml", text);
        project
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn file(&self, name: &str, content: impl AsRef<[u8]>) -> &Self {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
        self
    }

    pub(crate) fn read(&self, name: &str) -> String {
        String::from_utf8(fs::read(self.path(name)).unwrap()).unwrap()
    }

    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_palisade"));
        command.current_dir(self.folder.path()).env_remove("NO_COLOR").stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Run {
        Run::of(self.command().args(arguments))
    }

    pub(crate) fn run_with_stdin(&self, arguments: &[&str], input: impl AsRef<[u8]>) -> Run {
        let mut command = self.command();
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let input = input.as_ref().to_vec();
        let writer = std::thread::spawn(move || {
            let _ = stdin.write_all(&input);
        });
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap();
        Run::from(output)
    }
}

/// The output of a run, and how it ended.
pub(crate) struct Run {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) status: i32,
}

impl Run {
    pub(crate) fn of(command: &mut Command) -> Self {
        command.output().unwrap().into()
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self}"))
    }

    /// The codes of the findings in a human report, in order.
    pub(crate) fn codes(&self) -> Vec<String> {
        let lines = self.stdout.lines().chain(self.stderr.lines());
        lines
            .filter(|line| line.starts_with("error[") || line.starts_with("warning["))
            .filter_map(|line| Some(line.split_once('[')?.1.split_once(']')?.0.to_owned()))
            .collect()
    }
}

impl From<std::process::Output> for Run {
    fn from(output: std::process::Output) -> Self {
        Self {
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
            status: output.status.code().expect("ended by itself"),
        }
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.stdout)?;
        f.write_str(&self.stderr)?;
        write!(f, "exit status: {}", self.status)
    }
}

/// A process that ends with the test.
pub(crate) struct Running {
    pub(crate) child: Child,
    printed: mpsc::Receiver<String>,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Running {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let (sender, printed) = mpsc::channel();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        Self { child, printed }
    }

    /// The rest of the line that begins so.
    pub(crate) fn line(&self, beginning: &str) -> String {
        loop {
            let line = self.printed.recv_timeout(Duration::from_mins(1)).unwrap();
            if let Some(rest) = line.strip_prefix(beginning) {
                return rest.to_owned();
            }
        }
    }

    /// Sends SIGTERM, as a service manager does, and waits until it has.
    pub(crate) fn stop(mut self) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
        assert!(self.child.wait().unwrap().success());
    }
}
