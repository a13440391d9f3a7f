//! The format of the attack cases: `tests/attacks/README.md` describes it.

use std::{
    collections::BTreeMap,
    fmt, fs,
    path::{Path, PathBuf},
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use bytes::Bytes;
use palisade_base::version::{NEWEST_MINOR, OLDEST_MINOR};
use palisade_cli::args::FeatureGate;
use palisade_model::compat::Compat;
use serde::Deserialize;
use serde_json::Value;

use super::Answer;
use crate::support::Project;

/// The modes of a case that names none.
pub(super) const MODES: [Mode; 4] = [Mode::Default, Mode::Release(37), Mode::Release(24), Mode::OpenShift];

/// Whose rules a server follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Default,
    Release(u16),
    OpenShift,
}

impl Mode {
    pub(super) fn parse(text: &str) -> Option<Self> {
        match text {
            "default" => Some(Self::Default),
            "openshift" => Some(Self::OpenShift),
            release => {
                let minor = release.strip_prefix("v1.")?.parse().ok()?;
                (OLDEST_MINOR..=NEWEST_MINOR).contains(&minor).then_some(Self::Release(minor))
            }
        }
    }

    pub(super) fn compat(self) -> Compat {
        match self {
            Self::Default | Self::OpenShift => Compat::designs(),
            Self::Release(minor) => Compat::kubernetes(minor),
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::OpenShift => f.write_str("openshift"),
            Self::Release(minor) => write!(f, "v1.{minor}"),
        }
    }
}

/// A file of `tests/attacks`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Case {
    #[serde(skip)]
    pub(super) file: String,
    #[serde(skip)]
    pub(super) path: PathBuf,
    #[expect(dead_code, reason = "for readers of the file; required")]
    pub(super) about: String,
    #[serde(default)]
    pub(super) modes: Vec<String>,
    pub(super) gates: Option<String>,
    pub(super) user: Option<String>,
    #[serde(default)]
    pub(super) labels: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) files: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) setup: Vec<Value>,
    pub(super) attack: Vec<Step>,
    pub(super) twin: Vec<Step>,
    #[serde(default)]
    pub(super) webhook: bool,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Step {
    pub(super) request: Option<String>,
    pub(super) command: Option<Vec<String>>,
    pub(super) content_type: Option<String>,
    #[serde(default)]
    pub(super) headers: BTreeMap<String, String>,
    pub(super) body: Option<Value>,
    /// A body that is no text.
    pub(super) base64: Option<String>,
    pub(super) user: Option<String>,
    #[serde(default)]
    pub(super) expect: Expected,
    /// Whether the webhook is left out for this step.
    #[serde(default)]
    pub(super) no_webhook: bool,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Expected {
    pub(super) status: Option<OneOrMore<u16>>,
    pub(super) message: Option<OneOrMore<String>>,
    /// What the response does not contain.
    pub(super) absent: Option<OneOrMore<String>>,
    pub(super) exit: Option<OneOrMore<i32>>,
    pub(super) stdout: Option<OneOrMore<String>>,
    pub(super) stderr: Option<OneOrMore<String>>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub(super) enum OneOrMore<T> {
    One(T),
    More(Vec<T>),
}

impl<T> OneOrMore<T> {
    pub(super) fn as_slice(&self) -> &[T] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::More(more) => more,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Setup,
    Attack,
    Twin,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Setup => "setup",
            Self::Attack => "attack",
            Self::Twin => "twin",
        })
    }
}

pub(super) fn read_yaml(text: &str) -> Result<Value, String> {
    let parsed = palisade_yaml::parse(text, &palisade_yaml::Limits::default());
    if let Some(error) = parsed.errors.first() {
        return Err(error.to_string());
    }
    match parsed.documents.as_slice() {
        [document] => document.root().to_json().map_err(|error| error.to_string()),
        other => Err(format!("{} documents", other.len())),
    }
}

pub(super) fn cases() -> Vec<Case> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/attacks");
    let mut paths: Vec<PathBuf> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "yaml"))
        .collect();
    paths.sort();
    assert!(!paths.is_empty(), "no cases in {}", folder.display());
    let only = std::env::var("ATTACKS").unwrap_or_default();
    paths.retain(|path| path.to_string_lossy().contains(&only));
    paths.into_iter().map(|path| read_case(&path)).collect()
}

pub(super) fn read_case(path: &Path) -> Case {
    let file = path.file_name().unwrap().to_string_lossy().into_owned();
    let text = fs::read_to_string(path).unwrap();
    let read = read_yaml(&text)
        .and_then(|value| serde_json::from_value::<Case>(value).map_err(|error| error.to_string()));
    let mut case = read.unwrap_or_else(|why| panic!("{file}: {why}"));
    assert!(!case.attack.is_empty() && !case.twin.is_empty(), "{file}: needs an attack and a twin");
    path.clone_into(&mut case.path);
    case.file = file;
    case.modes();
    case
}

impl Case {
    pub(super) fn modes(&self) -> Vec<Mode> {
        if self.modes.is_empty() {
            return MODES.to_vec();
        }
        let parse =
            |text: &String| Mode::parse(text).unwrap_or_else(|| panic!("{}: mode {text:?}", self.file));
        self.modes.iter().map(parse).collect()
    }

    /// Whether anything but commands that name no server is in it.
    pub(super) fn needs_server(&self) -> bool {
        let served = |step: &Step| match &step.command {
            Some(arguments) => arguments.iter().any(|argument| argument.contains("{kubeconfig}")),
            None => true,
        };
        !self.setup.is_empty() || self.attack.iter().chain(&self.twin).any(served)
    }

    /// The name of its namespace.
    pub(super) fn namespace(&self) -> String {
        let stem = self.path.file_stem().unwrap().to_string_lossy().to_lowercase();
        stem.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).take(50).collect()
    }

    pub(super) fn project(&self) -> Project {
        let project = Project::new();
        for (name, text) in &self.files {
            project.file(name, text);
        }
        project
    }
}

impl Case {
    pub(super) fn compat(&self, mode: Mode) -> Compat {
        let gates = self.gates.iter().flat_map(|gates| gates.split(','));
        let gates: Vec<FeatureGate> = gates.map(|gate| gate.parse().unwrap()).collect();
        FeatureGate::apply(&gates, mode.compat())
    }
}

impl Step {
    pub(super) fn content_type(&self) -> &str {
        self.content_type.as_deref().unwrap_or("application/json")
    }

    pub(super) fn bytes(&self, fill: impl Fn(&str) -> String) -> Result<Bytes, String> {
        if let Some(encoded) = &self.base64 {
            let joined: String = encoded.split_whitespace().collect();
            return BASE64_STANDARD.decode(joined).map(Bytes::from).map_err(|error| error.to_string());
        }
        Ok(match &self.body {
            None => Bytes::new(),
            Some(Value::String(text)) => fill(text).into(),
            Some(structure) => fill(&structure.to_string()).into(),
        })
    }

    pub(super) fn creates_pod(&self) -> bool {
        let path = self.request.as_deref().and_then(|request| request.strip_prefix("POST "));
        let is_pods =
            path.is_some_and(|path| path.split('?').next().is_some_and(|path| path.ends_with("/pods")));
        is_pods && !self.no_webhook
    }
}

impl Expected {
    /// With what only a run has.
    pub(super) fn filled(&self, fill: impl Fn(&str) -> String) -> Self {
        let fill = |texts: &Option<OneOrMore<String>>| {
            texts
                .as_ref()
                .map(|texts| OneOrMore::More(texts.as_slice().iter().map(|text| fill(text)).collect()))
        };
        Self { message: fill(&self.message), absent: fill(&self.absent), ..self.clone() }
    }

    pub(super) fn judge(&self, answer: &Answer, part: Part) -> Result<(), String> {
        let code = answer.status;
        match (&self.status, part) {
            (Some(expected), _) if !expected.as_slice().contains(&code) => {
                return Err(format!("expected status {:?}", expected.as_slice()));
            }
            (None, Part::Attack) if !(400..500).contains(&code) => {
                return Err("expected a rejection".to_owned());
            }
            (None, Part::Twin | Part::Setup) if !(200..300).contains(&code) => {
                return Err("expected success".to_owned());
            }
            _ => {}
        }
        contains("message", self.message.as_ref(), &answer.text)?;
        for text in self.absent.as_ref().map_or(&[][..], OneOrMore::as_slice) {
            if answer.text.contains(text.as_str()) {
                return Err(format!("did not expect {text:?}"));
            }
        }
        Ok(())
    }
}

pub(super) fn contains(what: &str, expected: Option<&OneOrMore<String>>, found: &str) -> Result<(), String> {
    // Inside a Status the quotes of a message are escaped.
    let plain = found.replace("\\\"", "\"");
    for text in expected.map_or(&[][..], OneOrMore::as_slice) {
        if !found.contains(text.as_str()) && !plain.contains(text.as_str()) {
            return Err(format!("expected {what} {text:?}"));
        }
    }
    Ok(())
}
