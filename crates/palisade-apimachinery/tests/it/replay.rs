//! A tiny API server in memory: enough to replay recorded requests through the machinery.

use std::collections::BTreeMap;
use std::sync::Arc;

use palisade_apimachinery::apply::{self, Manager};
use palisade_apimachinery::patch::{self, PatchType};
use palisade_apimachinery::rest::{self, CreateContext, Extra};
use palisade_apimachinery::selector::{FieldSelector, parse_labels};
use palisade_apimachinery::status::Result;
use palisade_apimachinery::{FieldValidation, Kind, Scheme, Status, crd, scale, table};
use palisade_base::version::KubeVersion;
use serde_json::{Value, json};

use crate::pod_admission;

pub(crate) const NOW: &str = "2026-01-02T03:04:05Z";

/// The namespace scenarios live in.
pub(crate) const NAMESPACE: &str = "scenario";

pub(crate) struct Server {
    scheme: Scheme,
    custom: Vec<Arc<Kind>>,
    objects: BTreeMap<(String, String, String), Value>,
    counter: u64,
}

pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) body: Value,
    pub(crate) warnings: Vec<String>,
}

struct Target {
    kind: Arc<Kind>,
    namespace: String,
    name: String,
    subresource: String,
}

impl Server {
    pub(crate) fn new(version: KubeVersion) -> Self {
        Self { scheme: Scheme::new(version), custom: Vec::new(), objects: BTreeMap::new(), counter: 0 }
    }

    pub(crate) fn create_namespace(&mut self) {
        let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
        let request = json!({"method": "POST", "path": "/api/v1/namespaces", "body": body});
        let answer = self.answer(&request).unwrap();
        assert_eq!(answer.code, 201, "{}", answer.body);
    }

    /// Answers a recorded request, or `None` if it needs a real server.
    pub(crate) fn answer(&mut self, request: &Value) -> Option<Answer> {
        let (path, query) = split_query(request["path"].as_str()?);
        let target = self.route(&path)?;
        let mut warnings = Vec::new();
        let result = self.dispatch(request, &target, &query, &mut warnings)?;
        Some(match result {
            Ok((code, body)) => Answer { code, body, warnings },
            Err(status) => Answer { code: status.code, body: status.to_value(), warnings: Vec::new() },
        })
    }

    fn route(&self, path: &str) -> Option<Target> {
        let parts: Vec<&str> = path.split('/').filter(|p| !p.is_empty()).collect();
        let (group, version, rest) = match parts.as_slice() {
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            _ => return None,
        };
        let (namespace, rest) = match rest {
            ["namespaces", namespace, resource, more @ ..] if !["status", "finalize"].contains(resource) => {
                (*namespace, [&[*resource], more].concat())
            }
            rest => ("", rest.to_vec()),
        };
        let plural = *rest.first()?;
        let kind = self
            .scheme
            .by_resource(group, version, plural)
            .or_else(|| {
                self.custom.iter().find(|k| k.group == group && k.version == version && k.plural == plural)
            })?
            .clone();
        Some(Target {
            kind,
            namespace: namespace.to_owned(),
            name: rest.get(1).copied().unwrap_or_default().to_owned(),
            subresource: rest.get(2).copied().unwrap_or_default().to_owned(),
        })
    }

    fn dispatch(
        &mut self,
        request: &Value,
        target: &Target,
        query: &BTreeMap<String, String>,
        warnings: &mut Vec<String>,
    ) -> Option<Result<(u16, Value)>> {
        let kind = &target.kind;
        let method = request["method"].as_str()?;
        let key = (format!("{}/{}", kind.group, kind.plural), target.namespace.clone(), target.name.clone());
        let Ok(validation) = FieldValidation::parse(
            query.get("fieldValidation").map_or("", String::as_str),
            self.scheme.version(),
        ) else {
            return None;
        };
        let dry_run = query.contains_key("dryRun");
        let manager = Manager {
            name: query.get("fieldManager").map_or("", String::as_str),
            subresource: &target.subresource,
            now: NOW,
        };
        let body = match &request["body"] {
            Value::String(text) => text.clone(),
            Value::Null => String::new(),
            other => other.to_string(),
        };
        if body.contains("apiVersion:") {
            return None;
        }
        // Users, media types, pages and the like are the server's.
        if request.get("impersonateUser").is_some()
            || request["accept"].as_str().is_some_and(|a| a.contains("as=Partial") || a == "text/html")
            || ["limit", "continue", "resourceVersion", "resourceVersionMatch"]
                .iter()
                .any(|k| query.contains_key(*k))
        {
            return None;
        }
        let content_type = request["contentType"].as_str().unwrap_or_default();
        if !["", "application/json"].contains(&content_type)
            && PatchType::from_content_type(content_type).is_none()
        {
            return None;
        }
        let namespace_missing =
            kind.namespaced && !target.namespace.is_empty() && target.namespace != NAMESPACE;
        match (method, target.subresource.as_str()) {
            ("GET", "") if !target.name.is_empty() => Some(match self.objects.get(&key) {
                Some(object) if as_table(request) => {
                    Ok((200, print(kind, std::slice::from_ref(object), "Metadata")))
                }
                Some(object) => Ok((200, object.clone())),
                None => Err(Status::not_found(kind.resource_name(), &target.name)),
            }),
            ("GET", "") => Some(self.list(request, target, query)),
            ("GET", "scale") => Some(match self.objects.get(&key) {
                Some(object) => Ok((200, scale::get(kind, object))),
                None => Err(Status::not_found(kind.resource_name(), &target.name)),
            }),
            ("POST", "binding" | "eviction") => {
                self.objects.remove(&key);
                None
            }
            ("POST", "") if target.name.is_empty() => {
                if namespace_missing {
                    return Some(Err(Status::not_found(
                        palisade_apimachinery::status::GroupName::new("", "namespaces"),
                        &target.namespace,
                    )));
                }
                if !kind.verbs.contains(&"list") {
                    return None;
                }
                Some(self.create(target, body.as_bytes(), validation, dry_run, &manager, warnings))
            }
            ("PUT", "") if !target.name.is_empty() => {
                Some(self.update(target, &key, body.as_bytes(), validation, &manager, warnings))
            }
            ("PATCH", "" | "status" | "ephemeralcontainers") if !target.name.is_empty() => {
                let patch_type = PatchType::from_content_type(content_type)?;
                let force = query.get("force").map(String::as_str) == Some("true");
                Some(self.patch(target, &key, patch_type, &body, validation, &manager, force, warnings))
            }
            ("PATCH", "scale") => {
                let object = self.objects.get(&key)?.clone();
                let mut wanted = scale::get(kind, &object);
                wanted = patch::untyped(&wanted, PatchType::Merge, body.as_bytes()).ok()?;
                Some(scale::set(kind, &object, &wanted, &manager).and_then(|mut new| {
                    rest::before_update(kind, &mut new, &object, "", &Extra::default())?;
                    self.objects.insert(key, new.clone());
                    Ok((200, scale::get(kind, &new)))
                }))
            }
            _ => None,
        }
    }

    fn list(
        &self,
        request: &Value,
        target: &Target,
        query: &BTreeMap<String, String>,
    ) -> Result<(u16, Value)> {
        let kind = &target.kind;
        let labels = parse_labels(query.get("labelSelector").map_or("", String::as_str))?;
        let fields = FieldSelector::parse(kind, query.get("fieldSelector").map_or("", String::as_str))?;
        let resource = format!("{}/{}", kind.group, kind.plural);
        let items: Vec<&Value> = self
            .objects
            .iter()
            .filter(|((r, ns, _), _)| {
                *r == resource && (target.namespace.is_empty() || *ns == target.namespace)
            })
            .map(|(_, object)| object)
            .filter(|o| labels.matches(o) && fields.matches(kind, o))
            .collect();
        if as_table(request) {
            let items: Vec<Value> = items.into_iter().cloned().collect();
            return Ok((
                200,
                print(kind, &items, query.get("includeObject").map_or("Metadata", String::as_str)),
            ));
        }
        let items: Vec<Value> = items
            .into_iter()
            .map(|object| {
                let mut object = object.clone();
                if !kind.is_custom()
                    && let Some(map) = object.as_object_mut()
                {
                    map.remove("apiVersion");
                    map.remove("kind");
                }
                object
            })
            .collect();
        Ok((
            200,
            json!({"kind": kind.list_kind, "apiVersion": kind.api_version(), "metadata": {"resourceVersion": "1"},
                   "items": items}),
        ))
    }

    fn next_version(&mut self, object: &mut Value) {
        self.counter += 1;
        object["metadata"]["resourceVersion"] = self.counter.to_string().into();
    }

    fn uid(&mut self) -> String {
        self.counter += 1;
        format!("00000000-0000-4000-8000-{:012}", self.counter)
    }

    fn create(
        &mut self,
        target: &Target,
        body: &[u8],
        validation: FieldValidation,
        dry_run: bool,
        manager: &Manager<'_>,
        warnings: &mut Vec<String>,
    ) -> Result<(u16, Value)> {
        let kind = &target.kind;
        let decoded = kind.decode(body, validation)?;
        warnings.extend(decoded.warnings);
        let mut object = decoded.object;
        kind.default(&mut object);
        rest::on_create_request(kind, &mut object, &target.namespace)?;
        apply::on_update(kind, None, &mut object, manager);
        self.finish_create(target, object, dry_run, warnings)
    }

    fn finish_create(
        &mut self,
        target: &Target,
        mut object: Value,
        dry_run: bool,
        warnings: &mut Vec<String>,
    ) -> Result<(u16, Value)> {
        let kind = &target.kind;
        if kind.kind == "Pod" {
            pod_admission::default_tolerations(&mut object);
            pod_admission::default_priority(&mut object).map_err(Status::bad_request)?;
        }
        let uid = self.uid();
        let context = CreateContext { namespace: &target.namespace, now: NOW, uid: &uid, suffix: "bcdfg" };
        warnings.extend(rest::before_create(kind, &mut object, &context, &Extra::default())?);
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let key = (format!("{}/{}", kind.group, kind.plural), target.namespace.clone(), name.clone());
        if self.objects.contains_key(&key) {
            return Err(Status::already_exists(kind.resource_name(), &name));
        }
        if !dry_run {
            self.next_version(&mut object);
            self.objects.insert(key.clone(), object.clone());
            if kind.kind == "CustomResourceDefinition" {
                let established = crd::establish::establish(kind, &object, NOW);
                let text = established.to_string().into();
                self.custom.extend(crd::Definition::read(&text, kind.emulated, None).unwrap().kinds);
                self.objects.insert(key, established);
            }
        }
        Ok((201, object))
    }

    fn update(
        &mut self,
        target: &Target,
        key: &(String, String, String),
        body: &[u8],
        validation: FieldValidation,
        manager: &Manager<'_>,
        warnings: &mut Vec<String>,
    ) -> Result<(u16, Value)> {
        let kind = &target.kind;
        let decoded = kind.decode(body, validation)?;
        warnings.extend(decoded.warnings);
        let mut object = decoded.object;
        kind.default(&mut object);
        rest::check_name(&object, &target.name, &target.namespace)?;
        rest::ensure_namespace(kind, &mut object, &target.namespace)?;
        let Some(live) = self.objects.get(key).cloned() else {
            return Err(Status::not_found(kind.resource_name(), &target.name));
        };
        let uid = object["metadata"]["uid"].as_str().unwrap_or_default();
        if !uid.is_empty() && Some(uid) != live["metadata"]["uid"].as_str() {
            let stored = live["metadata"]["uid"].as_str().unwrap_or_default();
            return Err(rest::uid_precondition_failed(kind, &target.namespace, &target.name, uid, stored));
        }
        apply::on_update(kind, Some(&live), &mut object, manager);
        self.finish_update(target, key, object, &live, warnings)
    }

    fn finish_update(
        &mut self,
        target: &Target,
        key: &(String, String, String),
        mut object: Value,
        live: &Value,
        warnings: &mut Vec<String>,
    ) -> Result<(u16, Value)> {
        let kind = &target.kind;
        let wanted = object["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
        let stored = live["metadata"]["resourceVersion"].as_str().unwrap_or_default();
        if !wanted.is_empty() && wanted != stored {
            return Err(Status::modified(kind.resource_name(), &target.name));
        }
        object["metadata"]["resourceVersion"] = stored.into();
        warnings.extend(rest::before_update(
            kind,
            &mut object,
            live,
            &target.subresource,
            &Extra::default(),
        )?);
        if !rest::is_noop(&object, live) {
            self.next_version(&mut object);
        }
        self.objects.insert(key.clone(), object.clone());
        Ok((200, object))
    }

    #[allow(clippy::too_many_arguments)]
    fn patch(
        &mut self,
        target: &Target,
        key: &(String, String, String),
        patch_type: PatchType,
        body: &str,
        validation: FieldValidation,
        manager: &Manager<'_>,
        force: bool,
        warnings: &mut Vec<String>,
    ) -> Result<(u16, Value)> {
        let kind = &target.kind;
        let live = self.objects.get(key).cloned();
        if patch_type == PatchType::Apply {
            let config: Value = serde_json::from_str(body)
                .map_err(|e| Status::bad_request(format!("error decoding YAML: {e}")))?;
            let mut object = apply::apply(kind, live.as_ref(), &config, manager, force)?;
            kind.default(&mut object);
            return match live {
                Some(live) => self.finish_update(target, key, object, &live, warnings),
                None => self.finish_create(target, object, false, warnings),
            };
        }
        let Some(live) = live else { return Err(Status::not_found(kind.resource_name(), &target.name)) };
        let decoded = patch::patch(kind, &live, patch_type, body.as_bytes(), validation)?;
        warnings.extend(decoded.warnings);
        let mut object = decoded.object;
        kind.default(&mut object);
        apply::on_update(kind, Some(&live), &mut object, manager);
        self.finish_update(target, key, object, &live, warnings)
    }
}

fn print(kind: &Kind, objects: &[Value], include: &str) -> Value {
    let now = palisade_base::time::parse(NOW).unwrap().seconds;
    let printed = table::table(kind, objects, now);
    let rows: Vec<Value> = printed
        .rows
        .into_iter()
        .zip(objects)
        .map(|(cells, object)| {
            let mut metadata = object["metadata"].clone();
            if kind.kind == "DaemonSet" {
                metadata.as_object_mut().unwrap().remove("annotations");
            }
            let partial = json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata});
            json!({"cells": cells, "object": if include == "None" { Value::Null } else { partial }})
        })
        .collect();
    json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {"resourceVersion": "1"},
           "columnDefinitions": printed.columns.to_value(), "rows": rows})
}

fn as_table(request: &Value) -> bool {
    request["accept"].as_str().is_some_and(|accept| accept.contains("as=Table"))
}

fn split_query(path: &str) -> (String, BTreeMap<String, String>) {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let pairs = query
        .split('&')
        .filter(|p| !p.is_empty())
        .map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (key.to_owned(), percent_decode(value))
        })
        .collect();
    (path.to_owned(), pairs)
}

fn percent_decode(text: &str) -> String {
    let mut out = Vec::new();
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let hex = text.get(at + 1..at + 3).and_then(|h| u8::from_str_radix(h, 16).ok());
        match (bytes[at], hex) {
            (b'%', Some(byte)) => {
                out.push(byte);
                at += 3;
            }
            (byte, _) => {
                out.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}
