//! In which order webhooks are called, how often, and what a failure means.
//!
//! Implements: Dynamic Admission Control, "Reinvocation policy", "Failure policy", "Side effects", and the mutating and
//! validating dispatchers of `k8s.io/apiserver/pkg/admission/plugin/webhook`.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use futures::future::join_all;
use palisade_apimachinery::crd::Versions;
use palisade_apimachinery::kinds::autoscaling;
use palisade_apimachinery::patch::{self, PatchType};
use palisade_apimachinery::{Decoded, FieldValidation, Status, scale};
use palisade_base::go;
use palisade_base::metrics::Metric;
use serde_json::{Value, json};

use super::config::Hook;
use super::matching::{self, Matched};
use super::review::{Answer, GroupVersionKind, GroupVersionResource, Problem, Question, Review};
use super::{FAILED_OPEN, Hooks, REJECTIONS, REQUESTS, Webhooks};
use crate::admission_chain::{Notes, Operation, Request};
use crate::meta;
use crate::registry::Served;

/// A request that webhooks are called for.
pub(crate) struct Dispatch<'a> {
    /// The webhooks of the server.
    pub(crate) webhooks: &'a Webhooks,
    /// The facts.
    pub(crate) request: &'a Request<'a>,
    /// What is served, to find other versions of the resource.
    pub(crate) served: Arc<Served>,
    /// `CreateOptions`, `UpdateOptions` or `DeleteOptions`.
    pub(crate) options: &'a Value,
}

/// A request as expressions see it, in the version that was matched.
pub(crate) struct Described<'q> {
    /// The review without the objects.
    pub(crate) request: Value,
    pub(crate) object: Option<Cow<'q, Value>>,
    pub(crate) old_object: Option<Cow<'q, Value>>,
}

/// Why a webhook's answer is no yes.
enum Failure {
    /// The call failed; its failure policy decides.
    Calling(String),
    /// It rejected the request.
    Refused(Box<Status>),
    /// It broke the rules.
    Broken(Box<Status>),
}

impl Dispatch<'_> {
    /// Whether webhooks are never called: what registers them must stay editable when they do not work.
    fn is_exempt(&self) -> bool {
        self.request.kind.group == "admissionregistration.k8s.io"
    }

    /// Lets webhooks change the object, one after the other. `builtin` runs the built-in plugins once more where a
    /// webhook changed something.
    pub(crate) async fn mutate(
        &self,
        hooks: &Hooks,
        object: &mut Option<&mut Value>,
        notes: &mut Notes,
        mut builtin: impl FnMut(&mut Value, &mut Notes) -> Result<(), Box<Status>>,
    ) -> Result<(), Box<Status>> {
        if self.is_exempt() {
            return Ok(());
        }
        let mut again = Reinvocation::default();
        self.mutate_round(hooks, object, notes, &mut again, 0).await?;
        if !again.wanted {
            return Ok(());
        }
        let Some(object_now) = object.as_deref_mut() else { return Ok(()) };
        let before = object_now.clone();
        builtin(object_now, notes)?;
        if *object_now != before {
            again.require_previous();
        }
        self.mutate_round(hooks, object, notes, &mut again, 1).await
    }

    async fn mutate_round(
        &self,
        hooks: &Hooks,
        object: &mut Option<&mut Value>,
        notes: &mut Notes,
        again: &mut Reinvocation,
        round: usize,
    ) -> Result<(), Box<Status>> {
        for (index, hook) in hooks.iter().enumerate() {
            if round > 0 && !again.hooks.contains(&index) {
                continue;
            }
            let Some(matched) = self.matched(hook, object.as_deref())? else { continue };
            let outcome = self.call(hook, &matched, object.as_deref(), true, notes).await;
            let outcome = match outcome {
                Ok(answer) => self.patch(hook, &matched, answer, object),
                Err(failure) => Err(failure),
            };
            let changed = matches!(outcome, Ok(true));
            let mutation =
                json!({"configuration": hook.configuration, "webhook": hook.name, "mutated": changed});
            notes.audit.push((
                format!("mutation.webhook.admission.k8s.io/round_{round}_index_{index}"),
                mutation.to_string(),
            ));
            if changed {
                again.require_previous();
                again.wanted = true;
            }
            if hook.reinvoked {
                again.previous.insert(index);
            }
            if let Err(failure) = outcome {
                self.settle(hook, failure, "admit", notes, &format!("round_{round}_index_{index}"))?;
            }
        }
        Ok(())
    }

    /// Lets webhooks judge the object, all at once.
    pub(crate) async fn validate(
        &self,
        hooks: &Hooks,
        object: Option<&Value>,
        notes: &mut Notes,
    ) -> Result<(), Box<Status>> {
        if self.is_exempt() {
            return Ok(());
        }
        let mut relevant = Vec::new();
        for (index, hook) in hooks.iter().enumerate() {
            if let Some(matched) = self.matched(hook, object)? {
                relevant.push((index, hook, matched));
            }
        }
        let calls = relevant.iter().map(|(index, hook, matched)| async move {
            let mut collected = Notes::default();
            let outcome = match self.call(hook, matched, object, false, &mut collected).await {
                Ok(answer) if answer.allowed => Ok(()),
                Ok(answer) => Err(Failure::Refused(answer.refusal.into_status(&hook.name))),
                Err(failure) => Err(failure),
            };
            let outcome = match outcome {
                Ok(()) => Ok(()),
                Err(failure) => self.settle(
                    hook,
                    failure,
                    "validating",
                    &mut collected,
                    &format!("round_0_index_{index}"),
                ),
            };
            (collected, outcome)
        });
        let mut result = Ok(());
        for (collected, outcome) in join_all(calls).await {
            notes.warnings.extend(collected.warnings);
            notes.audit.extend(collected.audit);
            result = result.and(outcome);
        }
        result
    }

    /// Whether a webhook is to be called, with its conditions.
    fn matched(&self, hook: &Hook, object: Option<&Value>) -> Result<Option<Matched>, Box<Status>> {
        let Some(matched) = matching::matched(hook, self.request, object, &self.served)? else {
            return Ok(None);
        };
        if hook.conditions.is_empty() {
            return Ok(Some(matched));
        }
        let described = self.describe(&matched, object)?;
        let (object, old) = (described.object.as_deref(), described.old_object.as_deref());
        match hook.conditions.hold(&described.request, object, old) {
            Ok(true) => Ok(Some(matched)),
            Ok(false) => Ok(None),
            Err(_) if hook.ignores_failure => Ok(None),
            Err(problem) => Err(self.request.forbidden(&problem.to_string())),
        }
    }

    /// The request as expressions see it.
    pub(crate) fn describe<'q>(
        &'q self,
        matched: &'q Matched,
        object: Option<&'q Value>,
    ) -> Result<Described<'q>, Box<Status>> {
        self.check_version(matched)?;
        let mut question = self.question(matched, object);
        let (object, old_object) = (question.object.take(), question.old_object.take());
        let mut request =
            serde_json::to_value(&question).map_err(|error| Status::internal(error.to_string()))?;
        if let Some(fields) = request.as_object_mut() {
            // They are variables of their own.
            fields.remove("object");
            fields.remove("oldObject");
        }
        Ok(Described { request, object, old_object })
    }

    /// Rejects another version than that of the request where only a webhook could convert the object: judged under the name
    /// of a version that it does not have, it could be admitted although its rules forbid it.
    fn check_version(&self, matched: &Matched) -> Result<(), Box<Status>> {
        let kind = self.request.kind;
        let entry = self.served.find(&kind.group, &kind.version, &kind.plural);
        let converts = entry.and_then(|entry| entry.versions.as_deref()).and_then(Versions::webhook);
        if matched.version == kind.version || converts.is_none() {
            return Ok(());
        }
        Err(Status::internal(format!(
            "admission in version {} of an object of version {} needs a conversion webhook, which is not called here",
            matched.version, kind.version
        )))
    }

    fn question<'q>(&'q self, matched: &'q Matched, object: Option<&'q Value>) -> Question<'q> {
        let request = self.request;
        let kind = request.kind;
        let sub = kind.subresources.iter().find(|s| s.name == request.subresource && !s.kind.is_empty());
        let type_of = |version: &'q str| match sub {
            Some(sub) if !sub.version.is_empty() => {
                GroupVersionKind { group: sub.group, version: sub.version, kind: sub.kind }
            }
            Some(sub) => GroupVersionKind { group: &kind.group, version, kind: sub.kind },
            None => GroupVersionKind { group: &kind.group, version, kind: &kind.kind },
        };
        let resource =
            |version: &'q str| GroupVersionResource { group: &kind.group, version, resource: &kind.plural };
        let is_namespace = kind.group.is_empty() && kind.plural == "namespaces";
        Question {
            uid: meta::new_uid(),
            kind: type_of(&matched.version),
            resource: resource(&matched.version),
            sub_resource: request.subresource,
            request_kind: type_of(&kind.version),
            request_resource: resource(&kind.version),
            request_sub_resource: request.subresource,
            name: request.name,
            namespace: if is_namespace { request.name } else { request.namespace },
            operation: request.operation.as_str(),
            user_info: request.user.to_value(),
            object: object.map(|object| self.shown(object, matched)),
            old_object: request.old_object.map(|object| self.shown(object, matched)),
            dry_run: request.dry_run,
            options: self.options,
        }
    }

    /// An object as the webhook sees it: as a scale, or in another version.
    fn shown<'o>(&self, object: &'o Value, matched: &Matched) -> Cow<'o, Value> {
        let kind = self.request.kind;
        if self.request.subresource == "scale" {
            return Cow::Owned(scale::get(kind, object));
        }
        if matched.version == kind.version {
            return Cow::Borrowed(object);
        }
        if kind.group == "autoscaling" && !kind.is_custom() {
            // swallowed: validation rejects annotations that cannot be read, and what is there is sent
            let other = if kind.is_stored_otherwise() {
                autoscaling::to_v2(object.clone()).unwrap_or_else(|_| object.clone())
            } else {
                autoscaling::to_v1(object)
            };
            return Cow::Owned(other);
        }
        let mut converted = object.clone();
        if let Some(fields) = converted.as_object_mut() {
            fields.insert("apiVersion".to_owned(), format!("{}/{}", kind.group, matched.version).into());
        }
        Cow::Owned(converted)
    }

    /// Calls one webhook.
    async fn call(
        &self,
        hook: &Hook,
        matched: &Matched,
        object: Option<&Value>,
        mutating: bool,
        notes: &mut Notes,
    ) -> Result<Answer, Failure> {
        if self.request.dry_run && !hook.dry_runs {
            let why = format!("admission webhook {} does not support dry run", go::quote(&hook.name));
            return Err(Failure::Broken(Status::bad_request(why)));
        }
        self.check_version(matched).map_err(|status| Failure::Calling(status.message))?;
        let question = self.question(matched, object);
        let review = Review {
            kind: "AdmissionReview",
            api_version: format!("admission.k8s.io/{}", hook.review_version),
            request: &question,
        };
        let body = serde_json::to_vec(&review).map_err(|error| Failure::Calling(error.to_string()))?;
        let answered = hook.endpoint.post(body, hook.timeout).await;
        let body = answered.map_err(|error| Failure::Calling(error.to_string()))?;
        let answer = super::review::read(&body, &question.uid, hook.review_version, mutating);
        let answer = answer.map_err(|problem| {
            Failure::Calling(match problem {
                Problem::Unreadable(why) => format!("failed to call webhook: {why}"),
                Problem::Invalid(why) => format!("received invalid webhook response: {why}"),
            })
        })?;
        notes
            .audit
            .extend(answer.audit.iter().map(|(key, value)| (format!("{}/{key}", hook.name), value.clone())));
        notes.warnings.extend(answer.warnings.iter().cloned());
        let rejected = if answer.allowed { "false" } else { "true" };
        self.count(&REQUESTS, hook, mutating, [("code", "200"), ("rejected", rejected)]);
        Ok(answer)
    }

    /// Applies the patch of an answer; returns whether it changed anything.
    fn patch(
        &self,
        hook: &Hook,
        matched: &Matched,
        answer: Answer,
        object: &mut Option<&mut Value>,
    ) -> Result<bool, Failure> {
        if !answer.allowed {
            return Err(Failure::Refused(answer.refusal.into_status(&hook.name)));
        }
        if answer.patch.is_empty() {
            return Ok(false);
        }
        let broken = |why: &str| Failure::Broken(Status::internal(why));
        let Some(object) = object.as_deref_mut() else {
            return Err(broken(&format!(
                "admission webhook {} attempted to modify the object, which is not supported for this operation",
                go::quote(&hook.name)
            )));
        };
        if answer.patch_type != "JSONPatch" {
            return Err(Failure::Calling(format!(
                "unsupported patch type {}",
                go::quote(&answer.patch_type)
            )));
        }
        let kind = self.request.kind;
        if matched.version != kind.version && kind.group == "autoscaling" && !kind.is_custom() {
            return Err(Failure::Calling(format!(
                "patches of version {} of an object of version {} are not supported",
                matched.version, kind.version
            )));
        }
        let mut patched = if self.request.subresource == "scale" {
            let shown = scale::get(kind, object);
            let wanted = patch::untyped(&shown, PatchType::Json, &answer.patch);
            let wanted = wanted.map_err(|status| broken(&status.message))?;
            let wanted =
                scale::kind(kind.emulated).read(wanted).map_err(|error| broken(&error.to_string()))?;
            let manager = palisade_apimachinery::apply::Manager { name: "", subresource: "scale", now: "" };
            let scaled = scale::set(kind, object, &wanted, &manager).map_err(Failure::Broken)?;
            let mut result = object.clone();
            if let (Some(result), Some(spec)) = (result.as_object_mut(), scaled.get("spec")) {
                result.insert("spec".to_owned(), spec.clone());
            }
            result
        } else {
            let shown = self.shown(object, matched);
            let patched = patch::patch(kind, &shown, PatchType::Json, &answer.patch, FieldValidation::Ignore);
            let Decoded { object, .. } = patched.map_err(|status| broken(&status.message))?;
            object
        };
        kind.default(&mut patched).map_err(|status| broken(&status.message))?;
        if let Some(fields) = patched.as_object_mut() {
            fields.insert("apiVersion".to_owned(), kind.api_version().into());
        }
        let changed = patched != *object;
        *object = patched;
        Ok(changed)
    }

    /// What a failure means for the request.
    fn settle(
        &self,
        hook: &Hook,
        failure: Failure,
        kind: &'static str,
        notes: &mut Notes,
        at: &str,
    ) -> Result<(), Box<Status>> {
        let mutating = kind == "admit";
        match failure {
            Failure::Refused(status) => {
                let code = status.code.min(600).to_string();
                self.count_rejection(hook, mutating, "no_error", &code);
                Err(status)
            }
            Failure::Broken(status) => {
                self.count_rejection(hook, mutating, "apiserver_internal_error", "0");
                Err(status)
            }
            Failure::Calling(why) => {
                let why = format!("failed calling webhook {}: {why}", go::quote(&hook.name));
                if hook.ignores_failure {
                    tracing::warn!(webhook = %hook.name, error = %why, "webhook failed open");
                    let kind = if mutating { "admit" } else { "validating" };
                    self.webhooks.metrics.increment(&FAILED_OPEN, &[("name", &hook.name), ("type", kind)]);
                    let phase = if mutating { "mutating" } else { "validating" };
                    let key = format!("failed-open.{phase}.webhook.admission.k8s.io/{at}");
                    notes.audit.push((key, hook.name.clone()));
                    return Ok(());
                }
                self.count_rejection(hook, mutating, "calling_webhook_error", "0");
                Err(Status::internal(why))
            }
        }
    }

    fn count_rejection(&self, hook: &Hook, mutating: bool, error: &str, code: &str) {
        self.count(&REJECTIONS, hook, mutating, [("error_type", error), ("rejection_code", code)]);
    }

    fn count(&self, metric: &'static Metric, hook: &Hook, mutating: bool, more: [(&str, &str); 2]) {
        let [first, second] = more;
        let name = ("name", hook.name.as_str());
        let kind = ("type", if mutating { "admit" } else { "validating" });
        let operation = ("operation", self.request.operation.as_str());
        self.webhooks.metrics.increment(metric, &[name, kind, operation, first, second]);
    }
}

/// Which webhooks are called a second time.
#[derive(Default)]
struct Reinvocation {
    /// Something was changed.
    wanted: bool,
    /// Those that were called since the last change and are called again after the next.
    previous: BTreeSet<usize>,
    /// Those that will be called again.
    hooks: BTreeSet<usize>,
}

impl Reinvocation {
    fn require_previous(&mut self) {
        self.hooks.append(&mut self.previous);
    }
}

/// The options of an operation, as webhooks get them.
pub(crate) fn options(operation: Operation, given: Value) -> Value {
    let kind = match operation {
        Operation::Create => "CreateOptions",
        Operation::Update => "UpdateOptions",
        Operation::Delete => "DeleteOptions",
        Operation::Connect => return Value::Null,
    };
    let mut options = given;
    if let Some(fields) = options.as_object_mut() {
        fields.insert("kind".to_owned(), kind.into());
        fields.insert("apiVersion".to_owned(), "meta.k8s.io/v1".into());
    }
    options
}
