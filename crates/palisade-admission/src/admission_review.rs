//! `AdmissionReview` v1: a request in bytes, a verdict in bytes.
//!
//! Implements: the protocol of Pod Security Admission's webhook. What must be looked up first is said by
//! [`Review::needs`]; who looks it up, and how long that may take, is the caller's business. The object is read only
//! when request and namespace do not decide already.

use std::fmt::Write as _;

use palisade_model::{
    metadata::{ObjectMeta, StringMap},
    pod::Pod,
    pod_view::PodView,
    problem::{Problem, aggregate},
    quote::Quoted,
    workload::{WorkloadKind, read_template, workload_resource},
};
use palisade_policy::standards::{
    level::LevelVersion,
    namespace::{self, ExistingPods, Limit, NamespaceVerdict},
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use thiserror::Error;

use crate::{
    pod_security::{Counted, PodSecurity, Request, Screened, Verdict},
    review::is_significant_update,
};

/// Group and version of the protocol.
pub const API_VERSION: &str = "admission.k8s.io/v1";

/// Why a review cannot be answered; the HTTP layer answers 400 with this text.
#[derive(Debug, Error)]
pub enum ReviewError {
    /// Not JSON, or not of the shape of a review.
    #[error("unable to decode the request")]
    Undecodable(#[source] serde_json::Error),
    /// Another kind of document.
    #[error("unexpected AdmissionReview kind: {0}")]
    UnexpectedKind(String),
    /// A review without a request asks nothing.
    #[error("the AdmissionReview has no request")]
    NoRequest,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document<'a> {
    #[serde(borrow, default)]
    api_version: std::borrow::Cow<'a, str>,
    #[serde(borrow, default)]
    kind: std::borrow::Cow<'a, str>,
    #[serde(borrow, default)]
    request: Option<Review<'a>>,
}

/// The request of a review, borrowing from its bytes.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Review<'a> {
    /// Identity of the review; comes back in the response.
    #[serde(borrow, default)]
    pub uid: std::borrow::Cow<'a, str>,
    #[serde(borrow, default)]
    kind: GroupVersionKind<'a>,
    #[serde(borrow, default)]
    resource: GroupResource<'a>,
    #[serde(borrow, default)]
    request_sub_resource: std::borrow::Cow<'a, str>,
    /// Name of the object.
    #[serde(borrow, default)]
    pub name: std::borrow::Cow<'a, str>,
    /// Namespace of the request.
    #[serde(borrow, default)]
    pub namespace: std::borrow::Cow<'a, str>,
    /// `CREATE`, `UPDATE`, …
    #[serde(borrow, default)]
    pub operation: std::borrow::Cow<'a, str>,
    #[serde(borrow, default)]
    user_info: UserInfo<'a>,
    #[serde(borrow, default)]
    object: Option<&'a RawValue>,
    #[serde(borrow, default)]
    old_object: Option<&'a RawValue>,
}

#[derive(Debug, Default, Deserialize)]
struct GroupVersionKind<'a> {
    #[serde(borrow, default)]
    group: std::borrow::Cow<'a, str>,
    #[serde(borrow, default)]
    version: std::borrow::Cow<'a, str>,
    #[serde(borrow, default)]
    kind: std::borrow::Cow<'a, str>,
}

#[derive(Debug, Default, Deserialize)]
struct GroupResource<'a> {
    #[serde(borrow, default)]
    group: std::borrow::Cow<'a, str>,
    #[serde(borrow, default)]
    resource: std::borrow::Cow<'a, str>,
}

#[derive(Debug, Default, Deserialize)]
struct UserInfo<'a> {
    #[serde(borrow, default)]
    username: std::borrow::Cow<'a, str>,
}

/// What must be known to answer a review.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs<'r> {
    /// Nothing but the review.
    Nothing,
    /// The labels of this namespace.
    Namespace(&'r str),
    /// The pods of this namespace, to be judged at this level.
    Pods(&'r str, LevelVersion),
}

/// What was looked up.
#[derive(Debug)]
pub enum Facts<'f> {
    /// Nothing was needed.
    Nothing,
    /// The labels of the namespace, or why they cannot be had.
    Namespace(Result<&'f StringMap<'f>, String>),
    /// The pods of the namespace, in the order of the API server's list, or that they cannot be had.
    Pods(Result<Vec<Pod<'f>>, String>),
}

/// The answer to a review.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Response {
    /// Why the request is refused; none: it is allowed.
    pub refused: Option<Refusal>,
    /// What to tell the user.
    pub warnings: Vec<String>,
    /// Audit annotations.
    pub audit: Vec<(&'static str, String)>,
    /// What to count.
    pub counted: Vec<Counted>,
}

/// A refusal, as a `Status` tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// HTTP code.
    pub code: u16,
    /// Machine-readable reason.
    pub reason: &'static str,
    /// Text.
    pub message: String,
    /// Group, kind and name of what is refused, if told.
    pub details: Option<(String, String, String)>,
    /// Fields behind an `Invalid`.
    pub causes: Vec<Problem>,
}

impl<'a> Review<'a> {
    /// Reads a review.
    pub fn parse(body: &'a [u8]) -> Result<Self, ReviewError> {
        // A list would do for a struct as well, as far as the decoder is concerned.
        if body.iter().find(|byte| !byte.is_ascii_whitespace()) != Some(&b'{') {
            let error = <serde_json::Error as serde::de::Error>::custom("expected an object");
            return Err(ReviewError::Undecodable(error));
        }
        let document: Document<'a> = serde_json::from_slice(body).map_err(ReviewError::Undecodable)?;
        if document.api_version != API_VERSION || document.kind != "AdmissionReview" {
            let (group, version) =
                document.api_version.split_once('/').unwrap_or(("", &document.api_version));
            return Err(ReviewError::UnexpectedKind(format!("{group}/{version}, Kind={}", document.kind)));
        }
        document.request.ok_or(ReviewError::NoRequest)
    }

    fn is_namespace(&self) -> bool {
        self.resource.group.is_empty() && self.resource.resource == "namespaces"
    }

    fn is_pod(&self) -> bool {
        self.resource.group.is_empty() && self.resource.resource == "pods"
    }

    fn request(&self) -> Request<'_> {
        Request {
            namespace: &self.namespace,
            user: &self.user_info.username,
            subresource: &self.request_sub_resource,
            is_pod: self.is_pod(),
        }
    }

    /// What must be looked up before [`Review::answer`].
    #[must_use]
    pub fn needs(&self, security: &PodSecurity) -> Needs<'_> {
        if self.is_namespace() {
            return match self.judge_namespace(security) {
                Ok(NamespaceVerdict::CheckPods(policy)) => Needs::Pods(&self.name, policy),
                _ => Needs::Nothing,
            };
        }
        if security.exempt(&self.request()).is_some() {
            Needs::Nothing
        } else {
            Needs::Namespace(&self.namespace)
        }
    }

    /// Answers the review.
    #[must_use]
    pub fn answer(
        &self,
        security: &PodSecurity,
        facts: &Facts<'_>,
        limit: Limit,
        expired: impl FnMut() -> bool,
    ) -> Response {
        if self.is_namespace() {
            return self.answer_namespace(security, facts, limit, expired);
        }
        let request = self.request();
        if let Some(verdict) = security.exempt(&request) {
            return Response::of(verdict);
        }
        let labels = match facts {
            Facts::Namespace(Ok(labels)) => *labels,
            Facts::Namespace(Err(cause)) => return self.namespace_unknown(cause),
            Facts::Nothing | Facts::Pods(_) => return self.namespace_unknown("it was not looked up"),
        };
        match security.screen(&request, labels) {
            Screened::Done(verdict) => Response::of(verdict),
            Screened::Judge(policy, label_error) if request.is_pod => match self.pods() {
                Err(refusal) => Response::unreadable(refusal),
                Ok(Some(pod)) => {
                    let verdict = security.judge(&policy, label_error, true, &PodView::of_pod(&pod));
                    self.pod_response(verdict)
                }
                Ok(None) => Response::default(),
            },
            Screened::Judge(policy, label_error) => match self.template() {
                Err(error) => Response::noted(error),
                Ok(None) => Response::default(),
                Ok(Some((kind, pod))) => {
                    Response::of(security.judge(&policy, label_error, false, &kind.subject().view(&pod)))
                }
            },
        }
    }

    fn namespace_unknown(&self, cause: &str) -> Response {
        let text = format!("failed to lookup namespace {}", Quoted(&self.namespace));
        if !self.is_pod() {
            return Response::noted(format!("{text}: {cause}"));
        }
        let message = format!("Internal error occurred: {text}");
        let audit = vec![("error", format!("{text}: {cause}"))];
        let refused =
            Some(Refusal { code: 500, reason: "InternalError", message, details: None, causes: Vec::new() });
        Response { refused, audit, counted: vec![Counted::Error { fatal: true }], ..Response::default() }
    }

    /// The pod to judge; none if the update is not of interest.
    fn pods(&self) -> Result<Option<Pod<'a>>, (&'static str, Option<String>)> {
        let read = |raw: Option<&'a RawValue>, what: &'static str, kind: &'static str| match raw {
            None => Err((kind, None)),
            Some(raw) => {
                serde_json::from_str::<Pod<'a>>(raw.get()).map_err(|error| (what, Some(error.to_string())))
            }
        };
        let pod = read(self.object, "failed to decode object", "failed to decode pod")?;
        if self.operation == "UPDATE" {
            let old = read(self.old_object, "failed to decode old object", "failed to decode old pod")?;
            if !is_significant_update(&pod, &old) {
                return Ok(None);
            }
        }
        Ok(Some(pod))
    }

    fn template(&self) -> Result<Option<(&'static WorkloadKind, Pod<'a>)>, String> {
        let kind = workload_resource(&self.resource.group, &self.resource.resource);
        let Some(kind) = kind.filter(|kind| kind.built_in && kind.kind == self.kind.kind) else {
            return Err(format!(
                "failed to extract pod template: unexpected object type: {}/{}, Kind={}",
                self.kind.group, self.kind.version, self.kind.kind
            ));
        };
        let Some(raw) = self.object else { return Err("failed to decode object: there is none".to_owned()) };
        let mut json = serde_json::Deserializer::from_str(raw.get());
        let pod = read_template(&mut json, kind.path)
            .map_err(|error| format!("failed to decode object: {error}"))?;
        Ok(pod.map(|pod| (kind, pod)))
    }

    fn pod_response(&self, verdict: Verdict) -> Response {
        let denied = verdict.denied.clone();
        let mut response = Response::of(verdict);
        response.refused = denied.map(|denied| {
            let subject =
                if self.name.is_empty() { "pods".to_owned() } else { format!("pods {}", Quoted(&self.name)) };
            Refusal {
                code: 403,
                reason: "Forbidden",
                message: format!("{subject} is forbidden: {denied}"),
                details: Some((String::new(), "pods".to_owned(), self.name.to_string())),
                causes: Vec::new(),
            }
        });
        response
    }

    fn judge_namespace(
        &self,
        security: &PodSecurity,
    ) -> Result<NamespaceVerdict, (&'static str, Option<String>)> {
        #[derive(Deserialize)]
        struct Labelled<'l> {
            #[serde(borrow, default)]
            metadata: ObjectMeta<'l>,
        }
        fn labels<'l>(
            raw: Option<&'l RawValue>,
            object: &'static str,
            kind: &'static str,
        ) -> Result<StringMap<'l>, (&'static str, Option<String>)> {
            let raw = raw.ok_or((kind, None))?;
            let read: Labelled<'l> =
                serde_json::from_str(raw.get()).map_err(|error| (object, Some(error.to_string())))?;
            Ok(read.metadata.labels)
        }
        if !self.request_sub_resource.is_empty() {
            return Ok(NamespaceVerdict::Allowed(Vec::new()));
        }
        let new = labels(self.object, "failed to decode object", "failed to decode namespace")?;
        let (defaults, exemptions) = (&security.defaults, &security.exemptions);
        Ok(match self.operation.as_ref() {
            "CREATE" => namespace::create(&self.name, &new, defaults, exemptions),
            "UPDATE" => {
                // The two spaces are upstream's.
                let old = labels(
                    self.old_object,
                    "failed to decode  old object",
                    "failed to decode  old namespace",
                )?;
                namespace::update(&self.name, &new, &old, defaults, exemptions)
            }
            _ => NamespaceVerdict::Allowed(Vec::new()),
        })
    }

    fn answer_namespace(
        &self,
        security: &PodSecurity,
        facts: &Facts<'_>,
        limit: Limit,
        expired: impl FnMut() -> bool,
    ) -> Response {
        match self.judge_namespace(security) {
            Err(error) => Response { counted: Vec::new(), ..Response::unreadable(error) },
            Ok(NamespaceVerdict::Allowed(warnings)) => Response { warnings, ..Response::default() },
            Ok(NamespaceVerdict::Invalid(problems)) => {
                let message =
                    format!("Namespace {} is invalid: {}", Quoted(&self.name), aggregate(&problems));
                Response {
                    refused: Some(Refusal {
                        code: 422,
                        reason: "Invalid",
                        message,
                        details: Some((String::new(), "Namespace".to_owned(), self.name.to_string())),
                        causes: problems,
                    }),
                    ..Response::default()
                }
            }
            Ok(NamespaceVerdict::CheckPods(policy)) => {
                let warnings = match facts {
                    Facts::Pods(Ok(pods)) => {
                        ExistingPods::new(&security.evaluator, &security.exemptions, policy, limit).warnings(
                            &self.name,
                            pods.iter().map(PodView::of_pod),
                            expired,
                        )
                    }
                    _ => vec!["failed to list pods while checking new PodSecurity enforce level".to_owned()],
                };
                Response { warnings, ..Response::default() }
            }
        }
    }
}

impl Response {
    fn of(verdict: Verdict) -> Self {
        Self { refused: None, warnings: verdict.warnings, audit: verdict.audit, counted: verdict.counted }
    }

    /// A workload that could not be judged is let through with a note.
    fn noted(error: String) -> Self {
        Self {
            audit: vec![("error", error)],
            counted: vec![Counted::Error { fatal: true }],
            ..Self::default()
        }
    }

    fn unreadable((message, cause): (&'static str, Option<String>)) -> Self {
        let mut note = message.to_owned();
        if let Some(cause) = cause {
            let _ = write!(note, ": {cause}");
        }
        let refused = Refusal {
            code: 400,
            reason: "BadRequest",
            message: message.to_owned(),
            details: None,
            causes: Vec::new(),
        };
        Self {
            refused: Some(refused),
            audit: vec![("error", note)],
            counted: vec![Counted::Error { fatal: true }],
            ..Self::default()
        }
    }

    /// The review that goes back over the wire.
    pub fn to_bytes(&self, uid: &str) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec(&wire::AdmissionReview::of(self, uid))
    }
}

/// The JSON of a response.
mod wire {
    use std::collections::BTreeMap;

    use super::{API_VERSION, Refusal, Response, Serialize};

    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    pub(super) struct AdmissionReview<'r> {
        api_version: &'static str,
        kind: &'static str,
        response: Body<'r>,
    }

    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Body<'r> {
        uid: &'r str,
        allowed: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        status: Option<Status<'r>>,
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        audit_annotations: BTreeMap<&'r str, &'r str>,
        #[serde(skip_serializing_if = "<[String]>::is_empty")]
        warnings: &'r [String],
    }

    #[derive(Serialize)]
    struct Status<'r> {
        #[serde(rename = "status")]
        outcome: &'static str,
        message: &'r str,
        reason: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        details: Option<Details<'r>>,
        code: u16,
    }

    #[derive(Serialize)]
    struct Details<'r> {
        #[serde(skip_serializing_if = "str::is_empty")]
        name: &'r str,
        #[serde(skip_serializing_if = "str::is_empty")]
        group: &'r str,
        kind: &'r str,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        causes: Vec<Cause>,
    }

    #[derive(Serialize)]
    struct Cause {
        reason: &'static str,
        message: String,
        field: String,
    }

    impl<'r> AdmissionReview<'r> {
        pub(super) fn of(response: &'r Response, uid: &'r str) -> Self {
            Self {
                api_version: API_VERSION,
                kind: "AdmissionReview",
                response: Body {
                    uid,
                    allowed: response.refused.is_none(),
                    status: response.refused.as_ref().map(status),
                    audit_annotations: response
                        .audit
                        .iter()
                        .map(|(key, value)| (*key, value.as_str()))
                        .collect(),
                    warnings: &response.warnings,
                },
            }
        }
    }

    fn status(refusal: &Refusal) -> Status<'_> {
        let causes = refusal.causes.iter().map(|problem| Cause {
            reason: problem.kind.cause_reason(),
            message: problem.body(),
            field: problem.field(),
        });
        Status {
            outcome: "Failure",
            message: &refusal.message,
            reason: refusal.reason,
            details: refusal.details.as_ref().map(|(group, kind, name)| Details {
                name,
                group,
                kind,
                causes: causes.collect(),
            }),
            code: refusal.code,
        }
    }
}
