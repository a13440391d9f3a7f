//! Which policies match a request, and what they decide.
//!
//! Implements: the dispatchers, matchers and evaluators of `k8s.io/apiserver/pkg/admission/plugin/policy`. A policy that cannot be
//! evaluated rejects the request unless its failure policy is `Ignore`.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use palisade_apimachinery::cel::authorizer::{Access, Authorize};
use palisade_apimachinery::cel::budget::{MATCH_CONDITIONS, PER_OBJECT};
use palisade_apimachinery::cel::composition::Composition;
use palisade_apimachinery::cel::{Fault, Val};
use palisade_apimachinery::patch::{self, PatchType};
use palisade_apimachinery::rest::path::Get as _;
use palisade_apimachinery::status::{Cause, GroupName};
use palisade_apimachinery::{FieldValidation, Status, apply};
use palisade_base::field_error::aggregate;
use palisade_base::label_selector::LabelSelector;
use serde_json::{Value, json};
use thiserror::Error;

use super::config::{Binding, Expressions, MatchResources, Mutation, NamedRule, Policy};
use crate::admission_chain::{Notes, Request};
use crate::api::Api;
use crate::auth::UserInfo;
use crate::auth::rbac::Attributes;
use crate::conversion;
use crate::storage::Range;
use crate::webhooks::Dispatch;
use crate::webhooks::matching::{Matched, has_labels, in_namespace};

/// What expressions need: variables inside variables are evaluated inside each other.
const STACK: usize = 64 << 20;
/// What upstream accepts of a message, and of the value of an audit annotation.
const MAX_MESSAGE: usize = 5 * 1024;
const MAX_ANNOTATION: usize = 10 * 1024;
const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// Why a policy has no result, worded as upstream does.
#[derive(Debug, Error)]
enum PolicyError {
    /// It costs too much.
    #[error("{OUT_OF_BUDGET}")]
    OutOfBudget,
    /// An expression fails on this request.
    #[error("expression '{text}' resulted in error: {fault}")]
    Expression { text: String, fault: Fault },
    /// A condition has a result of another type.
    #[error("expression '{text}' did not return a bool")]
    NotABool { text: String },
    /// Conditions that are undecided while none is false.
    #[error("{}", aggregate(.0))]
    Conditions(Vec<PolicyError>),
    /// The value of an audit annotation has another type.
    #[error(
        "valueExpression '{text}' resulted in unsupported return type. Return type must be either string or null."
    )]
    NotAText { text: String },
    /// A mutation has a result that no object can hold.
    #[error("expression '{text}' has no value that JSON has")]
    NotJson { text: String },
    /// A JSON patch is no list.
    #[error("type mismatch: JSONPatchType expressions should evaluate to array")]
    NotAList,
    /// A configuration is no object.
    #[error("type mismatch: ApplyConfiguration expressions should evaluate to an object")]
    NotAnObject,
    /// A JSON patch cannot be applied.
    #[error("JSON Patch: {0}")]
    JsonPatch(String),
    /// A configuration cannot be merged, or the result has no defaults.
    #[error("{0}")]
    Apply(String),
}

impl PolicyError {
    fn of(text: String, fault: Fault) -> Self {
        match fault {
            Fault::Exhausted => Self::OutOfBudget,
            fault @ Fault::Error(_) => Self::Expression { text, fault },
        }
    }
}

/// A request that policies are evaluated for.
#[derive(Clone, Copy)]
pub(crate) struct Evaluation<'e> {
    pub(crate) api: &'e Arc<Api>,
    pub(crate) dispatch: &'e Dispatch<'e>,
}

/// Why a request is rejected.
struct Denial {
    message: String,
    /// A reason of the API; empty: `Invalid`.
    reason: String,
}

/// A denial, with the policy and the name of the binding it comes from.
type Denied<'p> = (&'p Policy, Option<String>, Denial);

/// What one validation, or the policy as a whole, decides.
struct Decision {
    index: usize,
    denial: Option<Denial>,
}

/// What a policy decides with one set of parameters.
#[derive(Default)]
struct Verdict {
    decisions: Vec<Decision>,
    /// Key and value; an error rejects the request.
    annotations: Vec<(String, Result<String, PolicyError>)>,
}

/// What expressions see.
struct Inputs<'i> {
    request: &'i Value,
    object: Option<&'i Value>,
    old_object: Option<&'i Value>,
    namespace: Option<&'i Value>,
    params: Option<&'i Value>,
    authorizer: Arc<dyn Authorize>,
    access: Access,
}

impl Inputs<'_> {
    fn variables(&self, with_namespace: bool) -> Vec<(&'static str, Val)> {
        let value =
            |value: Option<&Value>| value.map_or(Val::Null, |value| Val::from_json(&without_nulls(value)));
        vec![
            ("request", value(Some(self.request))),
            ("object", value(self.object)),
            ("oldObject", value(self.old_object)),
            ("namespaceObject", if with_namespace { value(self.namespace) } else { Val::Null }),
            ("params", value(self.params)),
            ("authorizer", Val::authorizer(self.authorizer.clone(), self.access.clone())),
        ]
    }
}

/// Access of the user of a request, decided by the server's own authorizer.
struct RequestAuthorizer {
    api: Arc<Api>,
    user: UserInfo,
}

impl Authorize for RequestAuthorizer {
    fn authorize(&self, access: &Access) -> (bool, String) {
        let account = access.service_account.as_ref().map(|(namespace, name)| {
            let group = format!("system:serviceaccounts:{namespace}");
            UserInfo::new(
                &format!("system:serviceaccount:{namespace}:{name}"),
                &["system:serviceaccounts", &group, "system:authenticated"],
            )
        });
        let attributes = Attributes {
            verb: &access.verb,
            group: &access.group,
            version: if access.path.is_some() { "" } else { "*" },
            resource: &access.resource,
            subresource: &access.subresource,
            namespace: &access.namespace,
            name: &access.name,
            path: access.path.as_deref().unwrap_or_default(),
            node: "",
        };
        let decision = self.api.authorizer.authorize(account.as_ref().unwrap_or(&self.user), &attributes);
        (decision.allowed, decision.reason)
    }
}

impl Evaluation<'_> {
    fn request(&self) -> &Request<'_> {
        self.dispatch.request
    }

    /// Whether policies are never evaluated: what decides about admission must stay editable.
    fn is_exempt(&self) -> bool {
        self.request().kind.group == "admissionregistration.k8s.io"
    }

    /// Lets policies judge the object.
    pub(crate) fn validate(
        &self,
        policies: &[Policy],
        object: Option<&Value>,
        notes: &mut Notes,
    ) -> Result<(), Box<Status>> {
        if policies.is_empty() || self.is_exempt() {
            return Ok(());
        }
        let mut denied = Vec::new();
        for policy in policies {
            self.validate_by(policy, object, notes, &mut denied)?;
        }
        match denied.into_iter().next() {
            Some((policy, binding, denial)) => {
                let who = match binding {
                    Some(binding) => {
                        format!("ValidatingAdmissionPolicy '{}' with binding '{binding}'", policy.name)
                    }
                    None => format!("ValidatingAdmissionPolicy '{}'", policy.name),
                };
                Err(self.rejected(&format!("{who} denied request: {}", denial.message), &denial.reason))
            }
            None => Ok(()),
        }
    }

    fn validate_by<'p>(
        &self,
        policy: &'p Policy,
        object: Option<&Value>,
        notes: &mut Notes,
        denied: &mut Vec<Denied<'p>>,
    ) -> Result<(), Box<Status>> {
        let matched = match self.matched(&policy.resources, object) {
            Ok(Some(matched)) => matched,
            Ok(None) => return Ok(()),
            Err(status) => {
                denied.extend(misconfigured(policy, None, &status.message));
                return Ok(());
            }
        };
        let expressions = match &policy.expressions {
            Ok(expressions) => expressions,
            Err(error) => {
                denied.extend(misconfigured(policy, None, &error.to_string()));
                return Ok(());
            }
        };
        let mut annotations: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for binding in &policy.bindings {
            let params = match self.is_bound(binding, object) {
                Ok(true) => self.params(policy, binding),
                Ok(false) => continue,
                Err(status) => Err(NoParams::Binding(status.message)),
            };
            let params = match params {
                Ok(params) => params,
                Err(NoParams::Policy(why)) => {
                    denied.extend(misconfigured(policy, None, &why));
                    continue;
                }
                Err(NoParams::Binding(why)) => {
                    denied.extend(misconfigured(policy, Some(binding), &why));
                    continue;
                }
            };
            for params in &params {
                let verdict = self.judged(policy, expressions, &matched, object, params.as_ref())?;
                for decision in verdict.decisions {
                    if let Some(denial) = decision.denial {
                        act(policy, binding, decision.index, denial, notes, denied);
                    }
                }
                for (key, value) in verdict.annotations {
                    match value {
                        Ok(value) => {
                            let values = annotations.entry(key).or_default();
                            if !values.contains(&value) {
                                values.push(value);
                            }
                        }
                        Err(error) => {
                            let denial = Denial { message: error.to_string(), reason: String::new() };
                            denied.push((policy, Some(binding.name.clone()), denial));
                        }
                    }
                }
            }
        }
        for (key, values) in annotations {
            notes.audit.push((format!("{}/{key}", policy.name), values.join(", ")));
        }
        Ok(())
    }

    fn rejected(&self, message: &str, reason: &str) -> Box<Status> {
        let mut status = self.request().forbidden(message);
        let (code, reason) = match reason {
            "Forbidden" => (403, "Forbidden"),
            "Unauthorized" => (401, "Unauthorized"),
            "RequestEntityTooLarge" => (413, "RequestEntityTooLarge"),
            _ => (422, "Invalid"),
        };
        status.code = code;
        status.reason = Cow::Borrowed(reason);
        if let Some(details) = &mut status.details {
            details.causes.push(Cause {
                reason: Cow::Borrowed(""),
                message: message.to_owned(),
                field: String::new(),
            });
        }
        status
    }

    /// The resource that a policy gets, if its rules and selectors match.
    fn matched(
        &self,
        resources: &MatchResources,
        object: Option<&Value>,
    ) -> Result<Option<Matched>, Box<Status>> {
        let request = self.request();
        let namespace = in_namespace(&resources.namespaces, request, object);
        if matches!(namespace, Ok(false)) || !has_labels(&resources.objects, object, request.old_object) {
            return Ok(None);
        }
        if self.find(&resources.excluded, resources.equivalent).is_some() {
            return Ok(None);
        }
        let found = if resources.rules.is_empty() {
            Some(Matched { version: request.kind.version.clone() })
        } else {
            self.find(&resources.rules, resources.equivalent)
        };
        match (found, namespace) {
            (Some(_), Err(status)) => Err(status),
            (found, _) => Ok(found),
        }
    }

    fn find(&self, rules: &[NamedRule], equivalent: bool) -> Option<Matched> {
        let request = self.request();
        let named =
            |rule: &NamedRule| rule.names.is_empty() || rule.names.iter().any(|name| name == request.name);
        let own = |rule: &&NamedRule| named(rule) && rule.rule.matches(request, request.kind);
        if rules.iter().any(|rule| own(&rule)) {
            return Some(Matched { version: request.kind.version.clone() });
        }
        let kind = request.kind;
        let others = || {
            let entries = self.dispatch.served.entries.iter().map(|entry| &entry.kind);
            entries.filter(|other| {
                equivalent
                    && other.group == kind.group
                    && other.plural == kind.plural
                    && other.version != kind.version
            })
        };
        rules.iter().filter(|rule| named(rule)).find_map(|rule| {
            let other = others().find(|other| rule.rule.matches(request, other))?;
            Some(Matched { version: other.version.clone() })
        })
    }

    fn is_bound(&self, binding: &Binding, object: Option<&Value>) -> Result<bool, Box<Status>> {
        match &binding.resources {
            Some(resources) => Ok(self.matched(resources, object)?.is_some()),
            None => Ok(true),
        }
    }

    /// The parameters of a binding; `None` in the list is an evaluation without any.
    fn params(&self, policy: &Policy, binding: &Binding) -> Result<Vec<Option<Value>>, NoParams> {
        let (Some((api_version, kind)), Some(reference)) = (&policy.param_kind, &binding.param_ref) else {
            return Ok(vec![None]);
        };
        let mut entries = self.dispatch.served.entries.iter();
        let entry =
            entries.find(|entry| entry.kind.api_version() == *api_version && entry.kind.kind == *kind);
        let Some(entry) = entry else {
            let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
            let shown = format!("{group}/{version}, Kind={kind}");
            return Err(NoParams::Policy(format!(
                "failed to find resource referenced by paramKind: '{shown}'"
            )));
        };
        let failed = |why: &str| Err(NoParams::Binding(why.to_owned()));
        let (given, own) = (reference.text("namespace"), self.request().namespace);
        let namespace = match (entry.kind.namespaced, given) {
            (false, "") => "",
            (false, _) => {
                return failed("paramRef.namespace must not be provided for a cluster-scoped `paramKind`");
            }
            (true, "") if own.is_empty() => {
                return failed(
                    "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources",
                );
            }
            (true, "") => own,
            (true, given) => given,
        };
        let name = reference.text("name");
        let found: Vec<Option<Value>> = if name.is_empty() {
            let range =
                if namespace.is_empty() { Range::All } else { Range::Namespace(namespace.to_owned()) };
            let selector = reference.child("selector").map(LabelSelector::from_object).unwrap_or_default();
            let objects = entry.bucket.list(&range).objects;
            let mut found = Vec::new();
            for object in objects {
                match conversion::present_now(entry, object) {
                    Ok(object) => found.push(entry.typed(object.parse())),
                    Err(error) => return failed(&error.to_string()),
                }
            }
            found.into_iter().filter(|object| selector.matches(object)).map(Some).collect()
        } else {
            let stored = entry.bucket.get(&entry.key(namespace, name));
            match stored.map(|object| conversion::present_now(entry, object)).transpose() {
                Ok(found) => found.map(|object| Some(entry.typed(object.parse()))).into_iter().collect(),
                Err(error) => return failed(&error.to_string()),
            }
        };
        if found.is_empty() && reference.text("parameterNotFoundAction") != "Allow" {
            return failed("no params found for policy binding with `Deny` parameterNotFoundAction");
        }
        Ok(found)
    }

    /// Calls `run` with what expressions see, on a stack that is large enough for them.
    fn with_inputs<T: Send>(
        &self,
        matched: &Matched,
        object: Option<&Value>,
        params: Option<&Value>,
        run: impl FnOnce(&Inputs<'_>) -> T + Send,
    ) -> Result<T, Box<Status>> {
        let request = self.request();
        let described = self.dispatch.describe(matched, object)?;
        let is_namespace = request.kind.group.is_empty() && request.kind.plural == "namespaces";
        let namespace = match request.namespace {
            "" => None,
            _ if is_namespace => None,
            name => match request.cluster.get("namespaces", "", name) {
                Some(namespace) => Some(Value::Object(namespace.parse())),
                None => return Err(Status::not_found(GroupName::new("", "namespaces"), name)),
            },
        };
        let inputs = Inputs {
            request: &described.request,
            object: described.object.as_deref(),
            old_object: described.old_object.as_deref(),
            namespace: namespace.as_ref(),
            params,
            authorizer: Arc::new(RequestAuthorizer { api: self.api.clone(), user: request.user.clone() }),
            access: Access {
                group: request.kind.group.clone(),
                resource: request.kind.plural.clone(),
                subresource: request.subresource.to_owned(),
                namespace: request.namespace.to_owned(),
                name: request.name.to_owned(),
                ..Access::default()
            },
        };
        let outcome = std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name("policy".to_owned()).stack_size(STACK);
            thread.spawn_scoped(scope, || run(&inputs)).map(std::thread::ScopedJoinHandle::join)
        });
        match outcome {
            Ok(Ok(outcome)) => Ok(outcome),
            _ => Err(Status::internal("the expressions of an admission policy cannot be evaluated")),
        }
    }

    fn judged(
        &self,
        policy: &Policy,
        expressions: &Expressions,
        matched: &Matched,
        object: Option<&Value>,
        params: Option<&Value>,
    ) -> Result<Verdict, Box<Status>> {
        self.with_inputs(matched, object, params, |inputs| verdict(policy, expressions, inputs))
    }

    /// Lets policies change the object, one after the other. `again`: only those that are evaluated again after changes.
    pub(crate) fn mutate(
        &self,
        policies: &[Policy],
        object: &mut Value,
        again: bool,
    ) -> Result<(), Box<Status>> {
        if policies.is_empty() || self.is_exempt() {
            return Ok(());
        }
        let mut last_change = None;
        for (index, policy) in policies.iter().enumerate() {
            if (!again || policy.reinvoked) && self.mutate_by(policy, object)? {
                last_change = Some(index);
            }
        }
        // Those whose object was changed after them see it once more.
        let Some(last_change) = last_change.filter(|_| !again) else { return Ok(()) };
        for policy in policies.iter().take(last_change).filter(|policy| policy.reinvoked) {
            let _ = self.mutate_by(policy, object)?;
        }
        Ok(())
    }

    /// Evaluates one policy; returns whether it changed the object.
    fn mutate_by(&self, policy: &Policy, object: &mut Value) -> Result<bool, Box<Status>> {
        let settle = |binding: Option<&Binding>, why: &str| {
            if policy.ignores_failure {
                return Ok(());
            }
            let who = match binding {
                Some(binding) => format!("policy '{}' with binding '{}'", policy.name, binding.name),
                None => format!("policy '{}'", policy.name),
            };
            let message = format!("{who} denied request: {why}");
            let mut status = self.rejected(&message, "");
            // Upstream answers so: the code of one reason and the name of another, without the name of the object.
            status.code = 403;
            status.message = message;
            Err(status)
        };
        let Some(matched) = self.matched(&policy.resources, Some(object))? else { return Ok(false) };
        let expressions = match &policy.expressions {
            Ok(expressions) => expressions,
            Err(error) => {
                settle(None, &format!("failed to configure policy: {error}"))?;
                return Ok(false);
            }
        };
        let mut changed = false;
        for binding in &policy.bindings {
            if !self.is_bound(binding, Some(object))? {
                continue;
            }
            let params = match self.params(policy, binding) {
                Ok(params) => params,
                Err(NoParams::Policy(why) | NoParams::Binding(why)) => {
                    settle(Some(binding), &format!("failed to configure binding: {why}"))?;
                    continue;
                }
            };
            for params in &params {
                match self.mutated(policy, expressions, &matched, object, params.as_ref())? {
                    Ok(Some(result)) => {
                        changed |= result != *object;
                        *object = result;
                    }
                    Ok(None) => {}
                    Err(why) => settle(Some(binding), &why.to_string())?,
                }
            }
        }
        Ok(changed)
    }

    /// The object after all mutations of a policy; `None` if its conditions do not hold.
    #[allow(
        clippy::type_complexity,
        reason = "a failure of the request, and one that the failure policy decides about"
    )]
    fn mutated(
        &self,
        policy: &Policy,
        expressions: &Expressions,
        matched: &Matched,
        object: &Value,
        params: Option<&Value>,
    ) -> Result<Result<Option<Value>, PolicyError>, Box<Status>> {
        let holds =
            self.with_inputs(matched, Some(object), params, |inputs| conditions_hold(expressions, inputs))?;
        match holds {
            Ok(true) => {}
            Ok(false) => return Ok(Ok(None)),
            Err(why) => return Ok(Err(why)),
        }
        let mut object = object.clone();
        let mut budget = PER_OBJECT;
        for mutation in &expressions.mutations {
            let (outcome, left) = self.with_inputs(matched, Some(&object), params, |inputs| {
                let variables = inputs.variables(true);
                let composition = Composition::new(&expressions.variables, &variables, budget);
                let outcome = composition.evaluate(&mutation.expression);
                (outcome.map(|value| value.to_json()), composition.left())
            })?;
            budget = left;
            match self.patched(policy, mutation, outcome, &object) {
                Ok(patched) => object = patched,
                Err(why) => return Ok(Err(why)),
            }
        }
        Ok(Ok(Some(object)))
    }

    fn patched(
        &self,
        _: &Policy,
        mutation: &Mutation,
        outcome: Result<Option<Value>, Fault>,
        object: &Value,
    ) -> Result<Value, PolicyError> {
        let kind = self.request().kind;
        let text = || mutation.text.clone();
        let value = outcome.map_err(|fault| PolicyError::of(text(), fault))?;
        let value = value.ok_or_else(|| PolicyError::NotJson { text: text() })?;
        let mut result = if mutation.is_json_patch {
            let Value::Array(operations) = &value else { return Err(PolicyError::NotAList) };
            if operations.is_empty() {
                return Ok(object.clone());
            }
            let body = value.to_string();
            let patched =
                patch::patch(kind, object, PatchType::Json, body.as_bytes(), FieldValidation::Ignore);
            patched.map_err(|status| PolicyError::JsonPatch(status.message))?.object
        } else {
            if !value.is_object() {
                return Err(PolicyError::NotAnObject);
            }
            apply::merged(kind, object, &value).map_err(|status| PolicyError::Apply(status.message))?
        };
        kind.default(&mut result).map_err(|status| PolicyError::Apply(status.message))?;
        if let Some(fields) = result.as_object_mut() {
            fields.insert("apiVersion".to_owned(), kind.api_version().into());
            fields.insert("kind".to_owned(), kind.kind.as_str().into());
        }
        Ok(result)
    }
}

/// Carries out the actions of a binding for a violation.
fn act<'p>(
    policy: &'p Policy,
    binding: &Binding,
    index: usize,
    denial: Denial,
    notes: &mut Notes,
    denied: &mut Vec<Denied<'p>>,
) {
    for action in &binding.actions {
        match action.as_str() {
            "Warn" => notes.warnings.push(format!(
                "Validation failed for ValidatingAdmissionPolicy '{}' with binding '{}': {}",
                policy.name, binding.name, denial.message
            )),
            "Audit" => {
                let failure = json!([{
                    "message": denial.message,
                    "policy": policy.name,
                    "binding": binding.name,
                    "expressionIndex": index,
                    "validationActions": binding.actions,
                }]);
                let key = "validation.policy.admission.k8s.io/validation_failure".to_owned();
                notes.audit.push((key, failure.to_string()));
            }
            _ => {}
        }
    }
    // An action that is not known is no reason to admit.
    if binding.actions.iter().any(|action| !matches!(action.as_str(), "Warn" | "Audit")) {
        denied.push((policy, Some(binding.name.clone()), denial));
    }
}

/// A policy or binding that cannot be evaluated, unless its failure policy ignores that.
fn misconfigured<'p>(policy: &'p Policy, binding: Option<&Binding>, why: &str) -> Option<Denied<'p>> {
    let of = if binding.is_some() { "binding" } else { "policy" };
    let denial = Denial { message: format!("failed to configure {of}: {why}"), reason: String::new() };
    (!policy.ignores_failure).then(|| (policy, binding.map(|binding| binding.name.clone()), denial))
}

/// Why there are no parameters, and whose mistake that is.
enum NoParams {
    Policy(String),
    Binding(String),
}

/// Whether all match conditions are true; one that is false decides.
fn conditions_hold(expressions: &Expressions, inputs: &Inputs<'_>) -> Result<bool, PolicyError> {
    if expressions.conditions.is_empty() {
        return Ok(true);
    }
    let variables = inputs.variables(false);
    let composition = Composition::new(&[], &variables, MATCH_CONDITIONS);
    let mut problems = Vec::new();
    for (text, condition) in &expressions.conditions {
        match composition.evaluate(condition) {
            Ok(Val::Bool(true)) => {}
            Ok(Val::Bool(false)) => return Ok(false),
            Ok(_) => problems.push(PolicyError::NotABool { text: text.clone() }),
            Err(fault) => problems.push(PolicyError::Expression { text: text.clone(), fault }),
        }
    }
    if problems.is_empty() { Ok(true) } else { Err(PolicyError::Conditions(problems)) }
}

fn verdict(policy: &Policy, expressions: &Expressions, inputs: &Inputs<'_>) -> Verdict {
    let failure =
        |message: String| (!policy.ignores_failure).then(|| Denial { message, reason: String::new() });
    match conditions_hold(expressions, inputs) {
        Ok(true) => {}
        Ok(false) => return Verdict::default(),
        Err(why) => {
            let decisions = vec![Decision { index: 0, denial: failure(why.to_string()) }];
            return Verdict { decisions, annotations: Vec::new() };
        }
    }
    let variables = inputs.variables(true);
    let composition = Composition::new(&expressions.variables, &variables, PER_OBJECT);
    let mut decisions = Vec::with_capacity(expressions.validations.len());
    for (index, validation) in expressions.validations.iter().enumerate() {
        let denial = match composition.evaluate(&validation.expression) {
            Ok(Val::Bool(true)) => None,
            Ok(_) => {
                let message = validation.message_expression.as_ref().and_then(|expression| {
                    // swallowed: a message that cannot be evaluated is replaced, as upstream does
                    match composition.evaluate(expression).ok()? {
                        Val::String(text) => Some(text.trim().to_owned()),
                        _ => None,
                    }
                });
                let usable =
                    |text: &String| !text.is_empty() && text.len() <= MAX_MESSAGE && !text.contains('\n');
                let message = message.filter(usable).unwrap_or_else(|| match validation.message.as_str() {
                    "" => format!("failed expression: {}", validation.text.trim()),
                    message => message.to_owned(),
                });
                Some(Denial { message, reason: validation.reason.clone() })
            }
            Err(Fault::Exhausted) => failure(OUT_OF_BUDGET.to_owned()),
            Err(fault) => failure(format!("expression '{}' resulted in error: {fault}", validation.text)),
        };
        decisions.push(Decision { index, denial });
    }
    let composition = Composition::new(&expressions.variables, &variables, PER_OBJECT);
    let mut annotations = Vec::new();
    for (key, text, expression) in &expressions.annotations {
        let value = match composition.evaluate(expression) {
            Ok(Val::String(value)) => Ok(value.trim().chars().take(MAX_ANNOTATION).collect::<String>()),
            Ok(Val::Null) => continue,
            Ok(_) => Err(PolicyError::NotAText { text: text.clone() }),
            Err(_) if policy.ignores_failure => continue,
            Err(fault) => Err(PolicyError::Expression { text: text.clone(), fault }),
        };
        if value.as_ref().is_ok_and(String::is_empty) {
            continue;
        }
        annotations.push((key.clone(), value));
    }
    Verdict { decisions, annotations }
}

/// A typed object of upstream has no nulls: what is not set is not there.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let set = fields.iter().filter(|(_, value)| !value.is_null());
            Value::Object(set.map(|(key, value)| (key.clone(), without_nulls(value))).collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(without_nulls).collect()),
        other => other.clone(),
    }
}
