//! Admission policies and their bindings.
//!
//! Implements: the validation of ValidatingAdmissionPolicy and MutatingAdmissionPolicy in `pkg/apis/admissionregistration`.
//! Leaves to others: compiling the CEL expressions, and evaluating them.

use palisade_base::field_error::{BadValue, FieldError};
use palisade_base::field_path::Path;
use serde_json::{Map, Value};

use super::pod::spec_selector;
use super::webhooks::{one_of, validate_conditions, validate_rule};
use super::workload::reset_status;
use super::{
    ResetFields, Strategy, bump_generation, no_reset, set_default, set_generation, update_spec_or_status,
};
use crate::cel::RESERVED;
use crate::rest::meta::{self, NameRule};
use crate::rest::names;
use crate::rest::path::{Errors, Get};
use crate::scheme::Kind;

const MAX_AUDIT_ANNOTATIONS: usize = 20;
const MAX_VALUE_EXPRESSION: usize = 5 * 1024;
/// The end of names that an API server loads from files.
const STATIC_SUFFIX: &str = ".static.k8s.io";

pub(crate) static POLICY: Strategy = Strategy {
    default: |object, _| {
        let Some(spec) = object.get_mut("spec").filter(|spec| spec.is_object()) else { return };
        set_default(spec, "failurePolicy", "Fail");
        default_resources(spec.get_mut("matchConstraints"));
    },
    prepare_create: |object, _| {
        set_generation(object);
        if let Some(fields) = object.as_object_mut() {
            fields.remove("status");
        }
    },
    prepare_update: update_spec_or_status,
    validate: validate_policy,
    validate_update: |new, old, _, kind, errors| {
        meta::validate_update(new, old, errors);
        validate_policy(new, kind, errors);
    },
    reset_fields: |subresource| match subresource {
        "status" => ResetFields::Exclude(&[&["spec"]]),
        other => reset_status(other),
    },
};

pub(crate) static BINDING: Strategy = Strategy {
    default: |object, _| {
        let Some(spec) = object.get_mut("spec").filter(|spec| spec.is_object()) else { return };
        default_resources(spec.get_mut("matchResources"));
    },
    prepare_create: |object, _| set_generation(object),
    prepare_update: |new, old, _, _| {
        let changed = new.get("spec") != old.get("spec");
        bump_generation(new, old, changed);
    },
    validate: validate_binding,
    validate_update: |new, old, _, kind, errors| {
        meta::validate_update(new, old, errors);
        validate_binding(new, kind, errors);
    },
    reset_fields: no_reset,
};

fn default_resources(resources: Option<&mut Value>) {
    let Some(resources) = resources.filter(|resources| resources.is_object()) else { return };
    set_default(resources, "matchPolicy", "Equivalent");
    set_default(resources, "namespaceSelector", Value::Object(Map::new()));
    set_default(resources, "objectSelector", Value::Object(Map::new()));
    for list in ["resourceRules", "excludeResourceRules"] {
        for rule in resources.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            set_default(rule, "scope", "*");
        }
    }
}

fn validate_name(object: &Value, errors: &mut Errors) {
    meta::validate(object, false, NameRule::Subdomain, errors);
    let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    if name.ends_with(STATIC_SUFFIX) {
        let why = "the suffix \".static.k8s.io\" is reserved for static manifest-based configurations";
        let at = Path::Root("metadata");
        errors.invalid(&at.field("name"), name, why);
    }
}

fn validate_policy(object: &Value, _: &Kind, errors: &mut Errors) {
    validate_name(object, errors);
    let nothing = Value::Null;
    let spec = object.get("spec").unwrap_or(&nothing);
    let at = Path::Root("spec");
    if spec.child("failurePolicy").is_none() {
        errors.required(&at.field("failurePolicy"), "");
    }
    one_of(spec, "failurePolicy", &["Fail", "Ignore"], &at, errors);
    if let Some(kind) = spec.child("paramKind") {
        validate_param_kind(kind, &at.field("paramKind"), errors);
    }
    match spec.child("matchConstraints") {
        None => errors.required(&at.field("matchConstraints"), ""),
        Some(constraints) => {
            let at = at.field("matchConstraints");
            validate_match_resources(constraints, &at, errors);
            if constraints.list("resourceRules").is_empty() {
                errors.required(&at.field("resourceRules"), "");
            }
        }
    }
    validate_conditions(spec.list("matchConditions"), &at.field("matchConditions"), errors);
    validate_variables(spec.list("variables"), &at.field("variables"), errors);
    if object.text("kind") == "MutatingAdmissionPolicy" {
        validate_mutations(spec, &at, errors);
    } else {
        validate_validations(object, spec, &at, errors);
    }
}

fn validate_param_kind(kind: &Value, at: &Path<'_>, errors: &mut Errors) {
    let version = kind.text("apiVersion");
    if version.is_empty() {
        errors.required(&at.field("apiVersion"), "");
    } else if version.matches('/').count() > 1 {
        errors.invalid(
            &at.field("apiVersion"),
            version,
            format!("unexpected GroupVersion string: {version}"),
        );
    }
    let name = kind.text("kind");
    if name.is_empty() {
        errors.required(&at.field("kind"), "");
    } else {
        let messages = names::dns1035_label(&name.to_lowercase());
        if !messages.is_empty() {
            let rule = format!("may have mixed case, but should otherwise match: {}", messages.join(","));
            errors.invalid(&at.field("kind"), name, rule);
        }
    }
}

fn validate_match_resources(resources: &Value, at: &Path<'_>, errors: &mut Errors) {
    one_of(resources, "matchPolicy", &["Equivalent", "Exact"], at, errors);
    for field in ["namespaceSelector", "objectSelector"] {
        match resources.child(field) {
            Some(selector) => spec_selector(selector, &at.field(field), errors),
            None => errors.required(&at.field(field), ""),
        }
    }
    for field in ["resourceRules", "excludeResourceRules"] {
        let list_at = at.field(field);
        for (i, rule) in resources.list(field).iter().enumerate() {
            let at = list_at.index(i);
            let names_at = at.field("resourceNames");
            let given = rule.list("resourceNames");
            for (j, name) in given.iter().enumerate() {
                let text = name.as_str().unwrap_or_default();
                errors.format(&names_at.index(j), text, names::path_segment(text));
                if given.get(..j).is_some_and(|before| before.contains(name)) {
                    errors.duplicate(&names_at.index(j), text);
                }
            }
            validate_rule(rule, &at, errors);
        }
    }
}

fn validate_variables(variables: &[Value], at: &Path<'_>, errors: &mut Errors) {
    for (i, variable) in variables.iter().enumerate() {
        let at = at.index(i);
        let name = variable.text("name");
        if name.trim().is_empty() {
            errors.required(&at.field("name"), "name is not specified");
        } else if !is_identifier(name) {
            errors.invalid(&at.field("name"), name, "name is not a valid CEL identifier");
        } else if variables
            .get(..i)
            .is_some_and(|before| before.iter().any(|other| other.text("name") == name))
        {
            errors.duplicate(&at.field("name"), name);
        }
        if variable.text("expression").trim().is_empty() {
            errors.required(&at.field("expression"), "expression is not specified");
        }
    }
}

fn is_identifier(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
        && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_')
        && !RESERVED.contains(&name)
}

fn validate_validations(object: &Value, spec: &Value, at: &Path<'_>, errors: &mut Errors) {
    let (validations, annotations) = (spec.list("validations"), spec.list("auditAnnotations"));
    if validations.is_empty() && annotations.is_empty() {
        for field in ["validations", "auditAnnotations"] {
            errors
                .required(&at.field(field), "validations or auditAnnotations must contain at least one item");
        }
        return;
    }
    let list_at = at.field("validations");
    for (i, validation) in validations.iter().enumerate() {
        let at = list_at.index(i);
        if validation.text("expression").trim().is_empty() {
            errors.required(&at.field("expression"), "expression is not specified");
        }
        let expression = validation.text("messageExpression");
        if !expression.is_empty() && expression.trim().is_empty() {
            errors.invalid(&at.field("messageExpression"), expression, "must be non-empty if specified");
        }
        let message = validation.text("message");
        if !message.is_empty() && message.trim().is_empty() {
            errors.invalid(&at.field("message"), message, "message must be non-empty if specified");
        } else if message.trim().contains(['\n', '\r']) {
            errors.invalid(&at.field("message"), message, "message must not contain line breaks");
        }
        one_of(validation, "reason", &["Forbidden", "Invalid", "RequestEntityTooLarge"], &at, errors);
    }
    let list_at = at.field("auditAnnotations");
    if annotations.len() > MAX_AUDIT_ANNOTATIONS {
        let rule = format!("must not have more than {MAX_AUDIT_ANNOTATIONS} auditAnnotations");
        errors.invalid(&list_at, BadValue::Json(Value::Array(annotations.to_vec())), rule);
    }
    let policy = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    for (i, annotation) in annotations.iter().enumerate() {
        let at = list_at.index(i);
        let (key, expression) = (annotation.text("key"), annotation.text("valueExpression"));
        let key_at = at.field("key");
        if policy.is_empty() {
            errors.format(&key_at, key, names::qualified_name(key, errors.version));
        } else {
            let qualified = format!("{policy}/{key}");
            errors.format(&key_at, &qualified, names::qualified_name(&qualified, errors.version));
        }
        let expression_at = at.field("valueExpression");
        if expression.trim().is_empty() {
            errors.required(&expression_at, "valueExpression is not specified");
        } else if expression.len() > MAX_VALUE_EXPRESSION {
            let rule = format!("must not exceed {MAX_VALUE_EXPRESSION} bytes in length");
            errors.list.push(FieldError::required(&expression_at, rule));
        }
        if annotations.get(..i).is_some_and(|before| before.iter().any(|other| other.text("key") == key)) {
            errors.duplicate(&key_at, key);
        }
    }
}

fn validate_mutations(spec: &Value, at: &Path<'_>, errors: &mut Errors) {
    let list_at = at.field("mutations");
    let mutations = spec.list("mutations");
    if mutations.is_empty() {
        errors.required(&list_at, "mutations must contain at least one item");
    }
    for (i, mutation) in mutations.iter().enumerate() {
        let at = list_at.index(i);
        let (own, other) = match mutation.text("patchType") {
            "" => {
                errors.required(&at.field("patchType"), "");
                continue;
            }
            "ApplyConfiguration" => ("applyConfiguration", "jsonPatch"),
            "JSONPatch" => ("jsonPatch", "applyConfiguration"),
            given => {
                errors.not_supported(&at.field("patchType"), given, &["ApplyConfiguration", "JSONPatch"]);
                continue;
            }
        };
        match mutation.child(own) {
            None => {
                errors.required(
                    &at.field(own),
                    format!("must be specified when patchType is {}", mutation.text("patchType")),
                );
            }
            Some(patch) if patch.text("expression").trim().is_empty() => {
                errors.required(&at.field(own).field("expression"), "expression is not specified");
            }
            Some(_) => {}
        }
        if mutation.child(other).is_some() {
            let why = format!("must not be specified when patchType is {}", mutation.text("patchType"));
            errors.invalid(&at.field(other), "{applyConfiguration}", why);
        }
    }
    if spec.text("reinvocationPolicy").is_empty() {
        errors.required(&at.field("reinvocationPolicy"), "");
    }
    if !spec.text("reinvocationPolicy").is_empty() {
        one_of(spec, "reinvocationPolicy", &["IfNeeded", "Never"], at, errors);
    }
}

fn validate_binding(object: &Value, _: &Kind, errors: &mut Errors) {
    validate_name(object, errors);
    let nothing = Value::Null;
    let spec = object.get("spec").unwrap_or(&nothing);
    let at = Path::Root("spec");
    let policy = spec.text("policyName");
    if policy.is_empty() {
        errors.required(&at.field("policyName"), "");
    } else {
        errors.format(&at.field("policyName"), policy, names::dns1123_subdomain(policy));
    }
    if let Some(reference) = spec.child("paramRef") {
        let at = at.field("paramRef");
        match (reference.text("name").is_empty(), reference.child("selector")) {
            (false, Some(_)) => {
                let why = "name and selector are mutually exclusive";
                errors.forbidden(&at.field("name"), why);
                errors.forbidden(&at.field("selector"), why);
            }
            (true, None) => errors.required(&at, "one of name or selector must be specified"),
            _ => {}
        }
        if reference.child("parameterNotFoundAction").is_none() {
            errors.required(&at.field("parameterNotFoundAction"), "");
        }
        one_of(reference, "parameterNotFoundAction", &["Allow", "Deny"], &at, errors);
    }
    if let Some(resources) = spec.child("matchResources") {
        validate_match_resources(resources, &at.field("matchResources"), errors);
    }
    if object.text("kind") == "ValidatingAdmissionPolicyBinding" {
        let actions_at = at.field("validationActions");
        let actions = spec.list("validationActions");
        for (i, action) in actions.iter().enumerate() {
            let text = action.as_str().unwrap_or_default();
            if !["Audit", "Deny", "Warn"].contains(&text) {
                errors.not_supported(&actions_at.index(i), text, &["Audit", "Deny", "Warn"]);
            }
            if actions.get(..i).is_some_and(|before| before.contains(action)) {
                errors.duplicate(&actions_at.index(i), text);
            }
        }
        let has = |wanted: &str| actions.iter().any(|action| action == wanted);
        if has("Deny") && has("Warn") {
            let why = "must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)";
            errors.invalid(&actions_at, BadValue::Json(Value::Array(actions.to_vec())), why);
        }
        if actions.is_empty() {
            errors.required(&actions_at, "");
        }
    }
}
