//! `AdmissionReview` v1: a request in bytes, a verdict in bytes.
//!
//! Implements: the protocol of Pod Security Admission's webhook. What must be looked up first is named by
//! [`Review::needs`]; who looks it up, and how long that may take, is the caller's business. The object is read only
//! when request and namespace do not decide already.

use std::borrow::Cow;

use palisade_base::go::Quoted;
use palisade_model::{
    compat::Compat,
    json,
    metadata::{ObjectMeta, StringMap},
    pod::{Pod, PodSpec},
    prepare::Prepared,
    profile::apparmor_profile,
    workload::{WORKLOADS, WorkloadKind, group_of, workload_resource},
};
use palisade_policy::{
    exceptions::{
        object as exception,
        set::{Excused, NamespaceExceptions},
        workload::{Provenance, Workload, of_pod, of_template},
    },
    profiles::policy,
    standards::{
        evaluator::StandardsOutcome,
        level::LevelVersion,
        namespace::{self, ExistingPods, Limit, NamespaceVerdict},
    },
};
use serde::Deserialize;
use serde_json::{Value, value::RawValue};
use thiserror::Error;

use crate::{
    pod_security::{Counted, ExceptionFacts, PodSecurity, Request, Screened, Verdict},
    response::{Refusal, Response},
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
    /// A review without a request has nothing to answer.
    #[error("the AdmissionReview has no request")]
    NoRequest,
    /// A review without an object kind cannot be judged.
    #[error("the AdmissionReview names no resource")]
    NoResource,
    /// Which of the two is judged would be a guess.
    #[error("the AdmissionReview names two subresources: {0:?} and {1:?}")]
    TwoSubresources(String, String),
    /// An operation that no API server sends.
    #[error("unexpected operation in the AdmissionReview: {0:?}")]
    UnexpectedOperation(String),
}

/// Why an object of a review cannot be judged: upstream's sentence, and the cause.
pub(crate) type Unreadable = (&'static str, Option<String>);

/// Upstream's sentences about one of the two objects of a review.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wording {
    /// It cannot be decoded.
    undecodable: &'static str,
    /// It is missing, or of another kind.
    unexpected: &'static str,
}

const POD: Wording = Wording { undecodable: "failed to decode object", unexpected: "failed to decode pod" };
const OLD_POD: Wording =
    Wording { undecodable: "failed to decode old object", unexpected: "failed to decode old pod" };
const NAMESPACE: Wording =
    Wording { undecodable: "failed to decode object", unexpected: "failed to decode namespace" };
const WORKLOAD: Wording =
    Wording { undecodable: "failed to decode object", unexpected: "failed to decode object" };
const OLD_WORKLOAD: Wording =
    Wording { undecodable: "failed to decode old object", unexpected: "failed to decode old object" };
// The two spaces are upstream's.
const OLD_NAMESPACE: Wording =
    Wording { undecodable: "failed to decode  old object", unexpected: "failed to decode  old namespace" };

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document<'a> {
    #[serde(borrow, default, deserialize_with = "text")]
    api_version: Cow<'a, str>,
    #[serde(borrow, default, deserialize_with = "text")]
    kind: Cow<'a, str>,
    #[serde(borrow, default)]
    request: Option<Review<'a>>,
}

/// The request of a review, borrowing from its bytes.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Review<'a> {
    /// Identity of the review; comes back in the response.
    #[serde(borrow, default, deserialize_with = "text")]
    pub uid: Cow<'a, str>,
    #[serde(borrow, default)]
    kind: GroupVersionKind<'a>,
    #[serde(borrow, default)]
    resource: GroupResource<'a>,
    /// The subresource of the original request; empty for the object itself.
    #[serde(borrow, default, deserialize_with = "text")]
    pub request_sub_resource: Cow<'a, str>,
    /// The subresource that the webhook is registered for: the same, where both are given.
    #[serde(borrow, default, deserialize_with = "text")]
    sub_resource: Cow<'a, str>,
    /// Name of the object.
    #[serde(borrow, default, deserialize_with = "text")]
    pub name: Cow<'a, str>,
    /// Namespace of the request.
    #[serde(borrow, default, deserialize_with = "text")]
    pub namespace: Cow<'a, str>,
    /// `CREATE`, `UPDATE`, …
    #[serde(borrow, default, deserialize_with = "text")]
    pub operation: Cow<'a, str>,
    /// The user who made the request.
    #[serde(borrow, default)]
    pub user_info: UserInfo<'a>,
    /// Whether nothing will be stored, so that nothing else may be done either.
    #[serde(default)]
    pub dry_run: Option<bool>,
    #[serde(borrow, default)]
    pub(crate) object: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(crate) old_object: Option<&'a RawValue>,
}

#[derive(Debug, Default, Deserialize)]
struct GroupVersionKind<'a> {
    #[serde(borrow, default, deserialize_with = "text")]
    group: Cow<'a, str>,
    #[serde(borrow, default, deserialize_with = "text")]
    version: Cow<'a, str>,
    #[serde(borrow, default, deserialize_with = "text")]
    kind: Cow<'a, str>,
}

#[derive(Debug, Default, Deserialize)]
struct GroupResource<'a> {
    #[serde(borrow, default, deserialize_with = "text")]
    group: Cow<'a, str>,
    #[serde(borrow, default, deserialize_with = "text")]
    resource: Cow<'a, str>,
}

/// The user of a request.
#[derive(Debug, Default, Deserialize)]
pub struct UserInfo<'a> {
    /// The name.
    #[serde(borrow, default, deserialize_with = "text")]
    pub username: Cow<'a, str>,
    /// The groups.
    #[serde(default, deserialize_with = "list")]
    pub groups: Vec<String>,
}

/// A string, borrowed if it can be; null is the empty one, as Go reads it.
fn text<'de: 'a, 'a, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Cow<'a, str>, D::Error> {
    struct Visitor;
    impl<'de> serde::de::Visitor<'de> for Visitor {
        type Value = Cow<'de, str>;
        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a string")
        }
        fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
            Ok(text.into())
        }
        fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
            Ok(text.to_owned().into())
        }
        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(Cow::default())
        }
    }
    deserializer.deserialize_any(Visitor)
}

/// A list; null is the empty one.
fn list<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// Group and resource of the policies for profiles.
const PROFILE_POLICIES: (&str, &str) = ("palisade.dev", "profilepolicies");
/// Group and resource of exceptions.
const APP_ARMOR_PROFILES: (&str, &str) = ("palisade.dev", apparmor_profile::RESOURCE);
const SECURITY_EXCEPTIONS: (&str, &str) = ("palisade.dev", exception::RESOURCE);
/// Group of the users that kubelets are.
const NODES: &str = "system:nodes";
/// What the name of a kubelet's user begins with; the name of its node follows.
const NODE_USER: &str = "system:node:";
/// Annotation of a pod that only mirrors what a kubelet runs on its own account.
const MIRROR: &str = "kubernetes.io/config.mirror";

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

/// Why a fact cannot be had, as its source reports it.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct Unavailable(pub String);

/// Why a request has no pod template to judge, worded as upstream does.
#[derive(Debug, Error)]
enum TemplateError {
    /// A kind without one.
    #[error("failed to extract pod template: unexpected object type: {group}/{version}, Kind={kind}")]
    UnexpectedKind { group: String, version: String, kind: String },
    /// The object cannot be read.
    #[error("{message}: {}", .cause.as_deref().unwrap_or("there is none"))]
    Unreadable { message: &'static str, cause: Option<String> },
}

/// What was looked up.
#[derive(Debug)]
pub enum PodSecurityFacts<'f> {
    /// Nothing was needed.
    Nothing,
    /// The labels of the namespace, or why they cannot be had.
    Namespace(Result<&'f StringMap<'f>, Unavailable>),
    /// The pods of the namespace, in the order of the API server's list, or that they cannot be had.
    Pods(Result<Vec<Prepared<'f>>, Unavailable>),
}

/// What a review is answered by.
#[derive(Debug, Clone, Copy)]
pub struct ReviewFacts<'r, 'f> {
    /// What was looked up.
    pub pod_security: &'r PodSecurityFacts<'f>,
    /// The pod that the template of a workload becomes, where mutation changes it.
    pub future: Option<&'r Value>,
    /// The exceptions of the cluster.
    pub exceptions: ExceptionFacts<'r>,
}

impl<'a> Review<'a> {
    /// Reads a review.
    pub fn parse(body: &'a [u8]) -> Result<Self, ReviewError> {
        let document: Document<'a> = json::from_slice(body).map_err(ReviewError::Undecodable)?;
        if document.api_version != API_VERSION || document.kind != "AdmissionReview" {
            let (group, version) =
                document.api_version.split_once('/').unwrap_or(("", &document.api_version));
            return Err(ReviewError::UnexpectedKind(format!("{group}/{version}, Kind={}", document.kind)));
        }
        let review = document.request.ok_or(ReviewError::NoRequest)?;
        if review.resource.resource.is_empty() {
            return Err(ReviewError::NoResource);
        }
        let (requested, registered) = (&review.request_sub_resource, &review.sub_resource);
        if requested != registered && !requested.is_empty() && !registered.is_empty() {
            return Err(ReviewError::TwoSubresources(requested.to_string(), registered.to_string()));
        }
        match review.operation.as_ref() {
            "CREATE" | "UPDATE" | "DELETE" | "CONNECT" => Ok(review),
            other => Err(ReviewError::UnexpectedOperation(other.to_owned())),
        }
    }

    /// What the request is about, in the words of the metrics.
    #[must_use]
    pub fn metric_resource(&self) -> &'static str {
        if self.is_pod() {
            "pod"
        } else if self.is_namespace() {
            "namespace"
        } else {
            "controller"
        }
    }

    /// The kind of workload the request is about, if it is one of Kubernetes.
    #[must_use]
    pub fn workload(&self) -> Option<&'static WorkloadKind> {
        workload_resource(&self.resource.group, &self.resource.resource)
            .filter(|kind| kind.built_in && kind.kind == self.kind.kind)
    }

    /// Whether a kubelet reports a pod that it runs whatever the response is: refusing it would only hide it.
    #[must_use]
    pub fn is_mirror_pod(&self) -> bool {
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        struct Bound<'l> {
            #[serde(borrow, deserialize_with = "text")]
            node_name: Cow<'l, str>,
        }
        #[derive(Deserialize)]
        struct Annotated<'l> {
            #[serde(borrow, default)]
            metadata: ObjectMeta<'l>,
            #[serde(borrow, default)]
            spec: Bound<'l>,
        }
        // A kubelet mirrors the pods of its own node, and only a kubelet mirrors any.
        let node = self.user_info.username.strip_prefix(NODE_USER).filter(|node| !node.is_empty());
        let Some(node) = node.filter(|_| self.user_info.groups.iter().any(|group| group == NODES)) else {
            return false;
        };
        self.is_pod()
            && self.operation == "CREATE"
            && self.object.is_some_and(|raw| {
                // swallowed: what cannot be read is no mirror pod, and is judged
                json::from_str::<Annotated<'_>>(raw.get()).is_ok_and(|pod| {
                    let bound = pod.spec.node_name;
                    pod.metadata.annotations.contains(MIRROR) && (bound.is_empty() || bound == node)
                })
            })
    }

    /// Whether a `ProfilePolicy` is written.
    #[must_use]
    pub fn is_profile_policy(&self) -> bool {
        (self.resource.group.as_ref(), self.resource.resource.as_ref()) == PROFILE_POLICIES
            && self.request_sub_resource.is_empty()
    }

    /// Whether an `AppArmorProfile` is written.
    #[must_use]
    pub fn is_app_armor_profile(&self) -> bool {
        (self.resource.group.as_ref(), self.resource.resource.as_ref()) == APP_ARMOR_PROFILES
            && self.request_sub_resource.is_empty()
    }

    /// Whether a `SecurityException` is written.
    #[must_use]
    pub fn is_security_exception(&self) -> bool {
        (self.resource.group.as_ref(), self.resource.resource.as_ref()) == SECURITY_EXCEPTIONS
            && self.request_sub_resource.is_empty()
    }

    fn is_namespace(&self) -> bool {
        self.resource.group.is_empty() && self.resource.resource == "namespaces"
    }

    /// Whether it is about pods or a subresource of theirs.
    #[must_use]
    pub fn is_pod(&self) -> bool {
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
                // swallowed: the answer rejects what cannot be read, and needs no facts for it
                _ => Needs::Nothing,
            };
        }
        if security.exempt(&self.request()).is_some() {
            Needs::Nothing
        } else {
            Needs::Namespace(&self.namespace)
        }
    }

    /// What Pod Security Admission answers. Objects are read by the rules of `reading`: an API server has set its defaults
    /// before it calls the webhook, and setting them again changes nothing. `future` is the pod of a workload as it will
    /// be, where that is not its template.
    #[must_use]
    pub fn answer(
        &self,
        security: &PodSecurity,
        reading: &Compat,
        facts: ReviewFacts<'_, '_>,
        limit: Limit,
        expired: impl FnMut() -> bool,
    ) -> Response {
        let ReviewFacts { pod_security: facts, future, exceptions } = facts;
        if self.is_namespace() {
            return self.answer_namespace(security, facts, exceptions, limit, expired);
        }
        let request = self.request();
        let screened = match (security.exempt(&request), facts) {
            (Some(verdict), _) => Screened::Done(verdict),
            (None, PodSecurityFacts::Namespace(Ok(labels))) => security.screen(&request, labels),
            (None, PodSecurityFacts::Namespace(Err(Unavailable(cause)))) => {
                return self.namespace_unknown(cause);
            }
            (None, PodSecurityFacts::Nothing | PodSecurityFacts::Pods(_)) => {
                return self.namespace_unknown("it was not looked up");
            }
        };
        // A pod that cannot be read, or is not the one that the request is about, is not admitted anywhere, for any user.
        let writes_pod = request.is_pod && matches!(self.operation.as_ref(), "CREATE" | "UPDATE");
        let mut pod = None;
        if writes_pod && !PodSecurity::ignores(&request) {
            match self.significant_pod(reading) {
                Err(refusal) => return Response::unreadable(refusal),
                Ok(read) => pod = read,
            }
        }
        let labels = match facts {
            PodSecurityFacts::Namespace(Ok(labels)) => Some(*labels),
            // swallowed: answered above
            _ => None,
        };
        let exceptions = NamespaceExceptions {
            set: exceptions.set,
            namespace: &self.namespace,
            labels,
            now: exceptions.now,
        };
        let excuse = |outcome: StandardsOutcome, pod: &Prepared<'_>, workloads: Vec<Workload>| -> Excused {
            exceptions.excuse(outcome, pod, &workloads)
        };
        match screened {
            Screened::Done(verdict) => Response::of(verdict),
            Screened::Judge(policy, label_error) if request.is_pod => match pod {
                Some(pod) => {
                    let workloads = || of_pod(&pod.pod().metadata, self.provenance());
                    let excuse = |outcome| excuse(outcome, &pod, workloads());
                    self.pod_response(security.judge(&policy, label_error, true, &pod, &excuse))
                }
                None if writes_pod => Response::default(),
                // Upstream reads the object of every request, and a deletion has none.
                None => Response::unreadable((POD.unexpected, None)),
            },
            Screened::Judge(policy, label_error) => match self.template() {
                Err(error) => Response::noted(error.to_string()),
                Ok(None) => Response::default(),
                Ok(Some((kind, pod))) => {
                    let judge = |pod| {
                        let pod = Prepared::new(pod, kind.subject(), reading);
                        let excuse = |outcome| excuse(outcome, &pod, of_template(kind, &self.name));
                        Response::of(security.judge(&policy, label_error, false, &pod, &excuse))
                    };
                    match future.map(json::from_value::<Pod<'_>>) {
                        None => judge(pod),
                        Some(Ok(future)) => judge(future),
                        Some(Err(error)) => Response::noted(format!("{}: {error}", WORKLOAD.undecodable)),
                    }
                }
            },
        }
    }

    /// Who makes the pod of the request. A change is not a creation: its user need not be the one who made the pod.
    fn provenance(&self) -> Provenance<'_> {
        if self.operation == "CREATE" {
            Provenance::CreatedBy(&self.user_info.username)
        } else {
            Provenance::Unknown
        }
    }

    fn namespace_unknown(&self, cause: &str) -> Response {
        let text = format!("failed to lookup namespace {}", Quoted(&self.namespace));
        if !self.is_pod() {
            return Response::noted(format!("{text}: {cause}"));
        }
        let audit = vec![("error".into(), format!("{text}: {cause}"))];
        let refused = Some(Refusal::internal(&text));
        Response { refused, audit, counted: vec![Counted::Error { fatal: true }], ..Response::default() }
    }

    /// The pod to judge; none if the update is not of interest. The API server has prepared the pod before it sends the review.
    fn significant_pod(&self, reading: &Compat) -> Result<Option<Prepared<'a>>, Unreadable> {
        let pod = Prepared::stored(self.pod()?, reading);
        if self.operation == "UPDATE" {
            let old = Prepared::stored(self.old_pod()?, reading);
            return Ok(is_significant_update(&pod, &old).then_some(pod));
        }
        Ok(Some(pod))
    }

    /// The pod of a request about pods.
    pub(crate) fn pod(&self) -> Result<Pod<'a>, Unreadable> {
        self.read_pod(self.object, POD)
    }

    /// The pod as it is stored.
    pub(crate) fn old_pod(&self) -> Result<Pod<'a>, Unreadable> {
        self.read_pod(self.old_object, OLD_POD)
    }

    fn read_pod(&self, raw: Option<&'a RawValue>, wording: Wording) -> Result<Pod<'a>, Unreadable> {
        /// A pod and the kind it declares: anything else would be read as a pod that requests nothing.
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        struct Typed<'l> {
            #[serde(borrow, deserialize_with = "text")]
            api_version: Cow<'l, str>,
            #[serde(borrow, deserialize_with = "text")]
            kind: Cow<'l, str>,
            #[serde(borrow)]
            metadata: Option<ObjectMeta<'l>>,
            #[serde(borrow)]
            spec: Option<PodSpec<'l>>,
        }
        let raw = self.of_kind(raw, wording)?;
        let Typed { api_version, kind, metadata, spec } =
            json::from_str(raw.get()).map_err(|error| (wording.undecodable, Some(error.to_string())))?;
        self.check_type(&api_version, &kind, wording)?;
        let metadata = metadata.unwrap_or_default();
        self.check_names(&metadata, wording)?;
        // A pod whose specification is not where it belongs would be read as one that requests nothing.
        let spec = spec.ok_or((wording.undecodable, Some("the pod has no spec".to_owned())))?;
        // Which of two sources is mounted is not for a judge to guess; no API server stores such a volume.
        if let Some(volume) = spec.volumes.iter().find(|volume| volume.has_several_sources()) {
            let cause = format!("volume {:?} has more than one source", volume.name.as_str());
            return Err((wording.undecodable, Some(cause)));
        }
        Ok(Pod { metadata, spec })
    }

    /// The workload of the request, if it is new or its template changes. What cannot be read is for the API server to reject.
    #[must_use]
    pub fn changed_workload(&self) -> Option<(&'static WorkloadKind, Value)> {
        let written =
            matches!(self.operation.as_ref(), "CREATE" | "UPDATE") && self.request_sub_resource.is_empty();
        let kind = self.workload().filter(|kind| written && !kind.path.is_empty())?;
        // swallowed: see above
        let object = self.object_value().ok()?;
        let template = |object: &Value| -> Option<Value> {
            kind.path.iter().try_fold(object, |value, field| value.get(field)).cloned()
        };
        // swallowed: without the old object everything is new
        let old = self.old_object_value().ok().flatten();
        let unchanged = old.is_some_and(|old| template(&old) == template(&object));
        (!unchanged).then_some((kind, object))
    }

    /// Whether the text of the object may contain a word: most do not, and need not be read for it. Behind a backslash any
    /// letter may be hidden.
    pub(crate) fn may_mention(&self, word: &str) -> bool {
        let hides = |text: &str| text.contains("\\u") || text.contains("\\/");
        self.object.is_some_and(|raw| raw.get().contains(word) || hides(raw.get()))
    }

    /// The object of a request as a value, without its managed fields.
    pub(crate) fn object_value(&self) -> Result<Value, Unreadable> {
        self.value(self.object, if self.is_pod() { POD } else { WORKLOAD })
    }

    /// The stored object of an update as a value; none if nothing is stored yet.
    pub(crate) fn old_object_value(&self) -> Result<Option<Value>, Unreadable> {
        let wording = if self.is_pod() { OLD_POD } else { OLD_WORKLOAD };
        (self.operation == "UPDATE").then(|| self.value(self.old_object, wording)).transpose()
    }

    fn value(&self, raw: Option<&'a RawValue>, wording: Wording) -> Result<Value, Unreadable> {
        let raw = self.of_kind(raw, wording)?;
        let object = json::object_from_str(raw.get())
            .map_err(|error| (wording.undecodable, Some(error.to_string())))?;
        let field = |name: &str| match object.get(name) {
            None | Some(Value::Null) => Ok(""),
            Some(Value::String(text)) => Ok(text.as_str()),
            Some(other) => Err((wording.undecodable, Some(format!("{name} is {other}, not a string")))),
        };
        self.check_type(field("apiVersion")?, field("kind")?, wording)?;
        Ok(Value::Object(object))
    }

    /// The text of an object, if the request is about the kind that its resource has.
    fn of_kind(&self, raw: Option<&'a RawValue>, wording: Wording) -> Result<&'a RawValue, Unreadable> {
        let GroupVersionKind { group, version, kind } = &self.kind;
        if self.resource_kind() == Some((group.as_ref(), kind.as_ref())) {
            return raw.ok_or((wording.unexpected, None));
        }
        Err((wording.unexpected, Some(format!("unexpected object type: {group}/{version}, Kind={kind}"))))
    }

    /// Rejects a request whose resource and kind cannot belong together: what is judged depends on both.
    pub(crate) fn check_resource(&self) -> Result<(), Unreadable> {
        if !self.request_sub_resource.is_empty() {
            return Ok(());
        }
        let GroupVersionKind { group, version, kind } = &self.kind;
        let of_resource = self.resource_kind();
        let of_kind = || {
            (group.is_empty() && kind == "Namespace")
                || WORKLOADS.iter().any(|workload| workload.group == group && workload.kind == kind)
        };
        let coherent = match of_resource {
            Some(expected) => expected == (group.as_ref(), kind.as_ref()),
            None => !of_kind(),
        };
        if coherent {
            return Ok(());
        }
        let resource = &self.resource.resource;
        let cause = format!("unexpected object type for {resource}: {group}/{version}, Kind={kind}");
        let message = match of_resource {
            Some(("", "Pod")) => POD.unexpected,
            Some(("", "Namespace")) => NAMESPACE.unexpected,
            _ => WORKLOAD.unexpected,
        };
        Err((message, Some(cause)))
    }

    /// The group and kind of what the resource holds, where it is known.
    fn resource_kind(&self) -> Option<(&'static str, &'static str)> {
        if self.is_namespace() {
            return Some(("", "Namespace"));
        }
        if self.is_profile_policy() {
            return Some((PROFILE_POLICIES.0, policy::KIND));
        }
        if self.is_app_armor_profile() {
            return Some((APP_ARMOR_PROFILES.0, apparmor_profile::KIND));
        }
        if self.is_security_exception() {
            return Some((SECURITY_EXCEPTIONS.0, exception::KIND));
        }
        let workload = workload_resource(&self.resource.group, &self.resource.resource)?;
        Some((workload.group, workload.kind))
    }

    /// An object need not declare its kind, but may not declare another one.
    fn check_type(&self, api_version: &str, kind: &str, wording: Wording) -> Result<(), Unreadable> {
        let GroupVersionKind { group, kind: expected, .. } = &self.kind;
        if (kind.is_empty() || kind == expected) && (api_version.is_empty() || group_of(api_version) == group)
        {
            return Ok(());
        }
        Err((wording.unexpected, Some(format!("unexpected object type: {api_version}, Kind={kind}"))))
    }

    /// An object has the name and the namespace of its request, where both have one.
    fn check_names(&self, metadata: &ObjectMeta<'_>, wording: Wording) -> Result<(), Unreadable> {
        let (name, namespace) = (metadata.name.as_str(), metadata.namespace.as_str());
        let cause = if !(namespace.is_empty() || namespace == self.namespace) {
            format!("the object is in namespace {namespace:?} and the request in {:?}", self.namespace)
        } else if !(name.is_empty() || self.name.is_empty() || name == self.name) {
            format!("the object is named {name:?} and the request is about {:?}", self.name)
        } else {
            return Ok(());
        };
        Err((wording.undecodable, Some(cause)))
    }

    /// The pod or template of a request; none if there is no template.
    pub(crate) fn pod_or_template(&self, kind: &WorkloadKind) -> Result<Option<Pod<'a>>, Unreadable> {
        if kind.path.is_empty() {
            return self.pod().map(Some);
        }
        let raw = self.of_kind(self.object, WORKLOAD)?;
        json::template_from_str(raw.get(), kind.path)
            .map_err(|error| (WORKLOAD.undecodable, Some(error.to_string())))
    }

    fn template(&self) -> Result<Option<(&'static WorkloadKind, Pod<'a>)>, TemplateError> {
        let Some(kind) = self.workload() else {
            let (group, version, kind) = (&self.kind.group, &self.kind.version, &self.kind.kind);
            return Err(TemplateError::UnexpectedKind {
                group: group.to_string(),
                version: version.to_string(),
                kind: kind.to_string(),
            });
        };
        let pod = self
            .pod_or_template(kind)
            .map_err(|(message, cause)| TemplateError::Unreadable { message, cause })?;
        Ok(pod.map(|pod| (kind, pod)))
    }

    fn pod_response(&self, verdict: Verdict) -> Response {
        let denied = verdict.denied.clone();
        let mut response = Response::of(verdict);
        response.refused = denied.map(|denied| Refusal::forbidden_pod(&self.name, &denied));
        response
    }

    /// The labels of the namespace that is written.
    fn namespace_labels(
        &self,
        raw: Option<&'a RawValue>,
        wording: Wording,
    ) -> Result<StringMap<'a>, Unreadable> {
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        struct Labelled<'l> {
            #[serde(borrow, deserialize_with = "text")]
            api_version: Cow<'l, str>,
            #[serde(borrow, deserialize_with = "text")]
            kind: Cow<'l, str>,
            #[serde(borrow)]
            metadata: Option<ObjectMeta<'l>>,
        }
        let read: Labelled<'a> = json::from_str(self.of_kind(raw, wording)?.get())
            .map_err(|error| (wording.undecodable, Some(error.to_string())))?;
        self.check_type(&read.api_version, &read.kind, wording)?;
        let metadata = read.metadata.unwrap_or_default();
        self.check_names(&metadata, wording)?;
        Ok(metadata.labels)
    }

    fn judge_namespace(&self, security: &PodSecurity) -> Result<NamespaceVerdict, Unreadable> {
        if !self.request_sub_resource.is_empty() {
            return Ok(NamespaceVerdict::Allowed(Vec::new()));
        }
        let new = self.namespace_labels(self.object, NAMESPACE)?;
        let (defaults, exemptions) = (&security.defaults, &security.exemptions);
        Ok(match self.operation.as_ref() {
            "CREATE" => namespace::create(&self.name, &new, defaults, exemptions),
            "UPDATE" => {
                let old = self.namespace_labels(self.old_object, OLD_NAMESPACE)?;
                namespace::update(&self.name, &new, &old, defaults, exemptions)
            }
            _ => NamespaceVerdict::Allowed(Vec::new()),
        })
    }

    fn answer_namespace(
        &self,
        security: &PodSecurity,
        facts: &PodSecurityFacts<'_>,
        exceptions: ExceptionFacts<'_>,
        limit: Limit,
        expired: impl FnMut() -> bool,
    ) -> Response {
        match self.judge_namespace(security) {
            Err(error) => Response { counted: Vec::new(), ..Response::unreadable(error) },
            Ok(NamespaceVerdict::Allowed(warnings)) => Response { warnings, ..Response::default() },
            Ok(NamespaceVerdict::Invalid(problems)) => {
                let refused = Some(Refusal::invalid("", "Namespace", &self.name, problems));
                Response { refused, ..Response::default() }
            }
            Ok(NamespaceVerdict::CheckPods(policy)) => {
                let warnings = match facts {
                    PodSecurityFacts::Pods(Ok(pods)) => {
                        // swallowed: labels that cannot be read were rejected above
                        let labels = self.namespace_labels(self.object, NAMESPACE).ok();
                        let (set, now) = (exceptions.set, exceptions.now);
                        let exceptions =
                            NamespaceExceptions { set, namespace: &self.name, labels: labels.as_ref(), now };
                        ExistingPods::new(&security.evaluator, &security.exemptions, policy, limit)
                            .excused_by(exceptions)
                            .warnings(&self.name, pods.iter(), expired)
                    }
                    // swallowed: reported as upstream does
                    _ => vec!["failed to list pods while checking new PodSecurity enforce level".to_owned()],
                };
                Response { warnings, ..Response::default() }
            }
        }
    }
}
