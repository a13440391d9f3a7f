//! The options of requests, from query parameters and bodies, with upstream's complaints about them.
//!
//! Implements: the option types of `meta.k8s.io/v1` and their validation.

use palisade_apimachinery::status::GroupName;
use palisade_apimachinery::{FieldValidation, Status};
use palisade_base::{field_error::FieldError, version::KubeVersion};
use serde_json::Value;

use crate::http::Query;

/// Options of create, update and patch.
#[derive(Debug, Clone, Default)]
pub struct WriteOptions {
    /// Nothing is to be stored.
    pub dry_run: bool,
    /// Who manages the fields, if the client names it.
    pub field_manager: String,
    /// What to do about unknown fields.
    pub validation: FieldValidation,
    /// Take fields from other managers.
    pub force: Option<bool>,
}

fn invalid(kind: &str, errors: &[FieldError], version: KubeVersion) -> Box<Status> {
    Status::invalid(GroupName::new("meta.k8s.io", kind), "", errors, version)
}

fn check_dry_run<'a>(values: impl Iterator<Item = &'a str>, errors: &mut Vec<FieldError>) -> bool {
    let values: Vec<&str> = values.collect();
    if values.iter().any(|v| *v != "All") {
        let given: Vec<String> = values.iter().map(|v| (*v).to_owned()).collect();
        errors.push(FieldError::not_supported("dryRun", Value::from(given), &["All"]));
    }
    !values.is_empty()
}

impl WriteOptions {
    /// The options of a write that no body of the client's kind leads to, such as a deletion.
    #[must_use]
    pub const fn without_body(dry_run: bool) -> Self {
        Self { dry_run, field_manager: String::new(), validation: FieldValidation::Ignore, force: None }
    }

    /// Reads the options; `kind` is the type of options, such as `CreateOptions`.
    pub fn parse(query: &Query, kind: &str, version: KubeVersion, apply: bool) -> Result<Self, Box<Status>> {
        let mut errors = Vec::new();
        let dry_run = check_dry_run(query.all("dryRun"), &mut errors);
        let field_manager = query.get("fieldManager").unwrap_or_default().to_owned();
        if apply && field_manager.is_empty() {
            errors.push(FieldError::required("fieldManager", "is required for apply patch"));
        }
        if field_manager.len() > 128 {
            errors.push(FieldError::too_long("fieldManager", 128));
        }
        if field_manager.chars().any(|c| !is_printable(c)) {
            errors.push(FieldError::invalid(
                "fieldManager",
                field_manager.as_str(),
                "should only contain printable characters",
            ));
        }
        let force = query.has("force").then(|| query.flag("force"));
        if force.is_some() && kind == "PatchOptions" && !apply {
            errors.push(FieldError::forbidden("force", "may not be specified for non-apply patch"));
        }
        let given = query.get("fieldValidation").unwrap_or_default();
        let validation = if let Some(validation) = FieldValidation::parse(given, version) {
            validation
        } else {
            errors.push(FieldError::not_supported(
                "fieldValidation",
                given,
                &["", "Ignore", "Strict", "Warn"],
            ));
            FieldValidation::default()
        };
        if errors.is_empty() {
            Ok(Self { dry_run, field_manager, validation, force })
        } else {
            Err(invalid(kind, &errors, version))
        }
    }
}

fn is_printable(c: char) -> bool {
    !c.is_control() && (c == ' ' || !c.is_whitespace())
}

/// How dependents are treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Propagation {
    /// They stay.
    Orphan,
    /// They go later.
    Background,
    /// They go first.
    Foreground,
}

/// Options of delete.
#[derive(Debug, Clone, Default)]
pub struct DeleteOptions {
    /// Nothing is to be removed.
    pub dry_run: bool,
    /// How long a pod has to stop.
    pub grace_period_seconds: Option<i64>,
    /// How dependents are treated.
    pub propagation: Option<Propagation>,
    /// Whether the client used the old field for dependents.
    pub orphan_dependents: Option<bool>,
    /// Only this object.
    pub uid: Option<String>,
    /// Only this version of it.
    pub resource_version: Option<String>,
}

impl DeleteOptions {
    /// Reads the options from the body, or from the query where there is no body.
    pub fn parse(query: &Query, body: Option<&Value>, version: KubeVersion) -> Result<Self, Box<Status>> {
        let mut errors = Vec::new();
        let mut options = Self::default();
        let policy: Option<String>;
        if let Some(body) = body {
            let text = |pointer: &str| body.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
            let dry_run = body.get("dryRun").and_then(Value::as_array);
            options.dry_run =
                check_dry_run(dry_run.into_iter().flatten().filter_map(Value::as_str), &mut errors);
            options.grace_period_seconds = body.get("gracePeriodSeconds").and_then(Value::as_i64);
            options.orphan_dependents = body.get("orphanDependents").and_then(Value::as_bool);
            options.uid = text("/preconditions/uid");
            options.resource_version = text("/preconditions/resourceVersion");
            policy = text("/propagationPolicy");
        } else {
            options.dry_run = check_dry_run(query.all("dryRun"), &mut errors);
            options.grace_period_seconds = query.number("gracePeriodSeconds")?;
            options.orphan_dependents = query.has("orphanDependents").then(|| query.flag("orphanDependents"));
            options.uid = query.get("preconditions.uid").map(str::to_owned);
            policy = query.get("propagationPolicy").map(str::to_owned);
        }
        // Dry run may also stand in the query when there is a body.
        options.dry_run |= check_dry_run(query.all("dryRun"), &mut errors);
        if policy.is_some() && options.orphan_dependents.is_some() {
            errors.push(FieldError::invalid(
                "propagationPolicy",
                policy.as_deref().unwrap_or_default(),
                "orphanDependents and deletionPropagation cannot be both set",
            ));
        }
        options.propagation = match policy.as_deref() {
            None => options
                .orphan_dependents
                .map(|o| if o { Propagation::Orphan } else { Propagation::Background }),
            Some("Orphan") => Some(Propagation::Orphan),
            Some("Background") => Some(Propagation::Background),
            Some("Foreground") => Some(Propagation::Foreground),
            Some(other) => {
                errors.push(FieldError::not_supported(
                    "propagationPolicy",
                    other,
                    &["Foreground", "Background", "Orphan", "nil"],
                ));
                None
            }
        };
        // A negative period means at once, but still in the graceful way.
        options.grace_period_seconds = options.grace_period_seconds.map(|s| if s < 0 { 1 } else { s });
        if errors.is_empty() { Ok(options) } else { Err(invalid("DeleteOptions", &errors, version)) }
    }
}

/// What a list is to be true for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    /// Now.
    Latest,
    /// Any time.
    Any,
    /// This revision or later.
    NotOlderThan(u64),
    /// This revision.
    Exact(u64),
}

/// Options of list and watch.
#[derive(Debug, Clone)]
pub struct ListOptions {
    /// Objects at most; zero means all.
    pub limit: usize,
    /// Where to go on.
    pub continue_token: Option<String>,
    /// What the answer is to be true for.
    pub at: At,
    /// How long a watch may last.
    pub timeout_seconds: Option<i64>,
    /// Whether bookmarks report progress while nothing changes.
    pub bookmarks: bool,
    /// Begin a watch with what exists.
    pub send_initial_events: Option<bool>,
}

impl ListOptions {
    /// Reads the options.
    pub fn parse(query: &Query, watch: bool, version: KubeVersion) -> Result<Self, Box<Status>> {
        let limit = query.number("limit")?.unwrap_or(0);
        let timeout_seconds = query.number("timeoutSeconds")?;
        let send_initial_events = query.has("sendInitialEvents").then(|| query.flag("sendInitialEvents"));
        let continue_token = query.get("continue").map(str::to_owned);
        let matching = query.get("resourceVersionMatch");
        let mut revision = query.get("resourceVersion").unwrap_or_default();
        let errors = if watch {
            watch_errors(matching, send_initial_events, continue_token.as_deref())
        } else {
            list_errors(matching, send_initial_events, continue_token.as_deref(), revision)
        };
        if !errors.is_empty() {
            return Err(invalid("ListOptions", &errors, version));
        }
        if continue_token.is_some() {
            if !revision.is_empty() && revision != "0" {
                return Err(Status::bad_request(
                    "specifying resource version is not allowed when using continue",
                ));
            }
            revision = "";
        }
        let at = match (revision, matching) {
            ("", _) => At::Latest,
            ("0", _) => At::Any,
            (text, matching) => {
                let number = parse_revision(text, watch)?;
                match matching {
                    Some("Exact") => At::Exact(number),
                    // Upstream serves a first page at exactly the revision it is requested.
                    None if limit > 0 && !watch => At::Exact(number),
                    _ => At::NotOlderThan(number),
                }
            }
        };
        Ok(Self {
            limit: usize::try_from(limit).unwrap_or(0),
            continue_token,
            at,
            timeout_seconds,
            bookmarks: query.flag("allowWatchBookmarks"),
            send_initial_events,
        })
    }
}

fn parse_revision(text: &str, watch: bool) -> Result<u64, Box<Status>> {
    text.parse().map_err(|error: std::num::ParseIntError| {
        let why = match error.kind() {
            std::num::IntErrorKind::PosOverflow => "value out of range",
            _ => "invalid syntax",
        };
        let quoted = palisade_base::go::quote(text);
        let problem =
            format!("resourceVersion: Invalid value: {quoted}: strconv.ParseUint: parsing {quoted}: {why}");
        let prefix = if watch { "" } else { "invalid resource version: " };
        Status::bad_request(format!("{prefix}{problem}"))
    })
}

fn list_errors(
    matching: Option<&str>,
    initial: Option<bool>,
    token: Option<&str>,
    revision: &str,
) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let field = "resourceVersionMatch";
    if let Some(matching) = matching {
        if revision.is_empty() {
            errors.push(FieldError::forbidden(
                field,
                "resourceVersionMatch is forbidden unless resourceVersion is provided",
            ));
        }
        if token.is_some() {
            errors.push(FieldError::forbidden(
                field,
                "resourceVersionMatch is forbidden when continue is provided",
            ));
        }
        if !matches!(matching, "Exact" | "NotOlderThan") {
            errors.push(FieldError::not_supported(field, matching, &["Exact", "NotOlderThan", ""]));
        }
        if matching == "Exact" && revision == "0" {
            errors.push(FieldError::forbidden(
                field,
                "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
            ));
        }
    }
    if initial.is_some() {
        errors.push(FieldError::forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"));
    }
    errors
}

fn watch_errors(matching: Option<&str>, initial: Option<bool>, token: Option<&str>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let field = "resourceVersionMatch";
    if initial.is_some() && matching.is_none() {
        errors.push(FieldError::forbidden(
            field,
            "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
        ));
    }
    if let Some(matching) = matching {
        if initial.is_none() {
            errors.push(FieldError::forbidden(
                field,
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            ));
        }
        if matching != "NotOlderThan" {
            errors.push(FieldError::not_supported(field, matching, &["NotOlderThan"]));
        }
        if token.is_some() {
            errors.push(FieldError::forbidden(
                field,
                "resourceVersionMatch is forbidden when continue is provided",
            ));
        }
    }
    errors
}
