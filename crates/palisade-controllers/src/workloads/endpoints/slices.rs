//! Which EndpointSlices to write, so that few of them change. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::workloads::{
    meta::controller_reference,
    object::{Object, is_equal, list},
};

/// A slice has at most so many endpoints.
const MOST: usize = 100;
/// The Service of a slice.
pub const SERVICE: &str = "kubernetes.io/service-name";
/// The controller of a slice.
pub const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";

/// Endpoints of one family with the same ports.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// `IPv4` or `IPv6`.
    pub family: &'static str,
    /// The ports.
    pub ports: Vec<Value>,
    /// The endpoints by address.
    pub endpoints: BTreeMap<String, Value>,
}

/// Whose slices they are.
#[derive(Debug, Clone)]
pub struct SliceOwner<'o> {
    /// Group and version.
    pub api_version: &'static str,
    /// Kind.
    pub kind: &'static str,
    /// The object.
    pub object: &'o Object,
    /// The controller.
    pub manager: &'static str,
    /// Labels that all slices have.
    pub labels: BTreeMap<String, String>,
}

/// What is to be written.
#[derive(Debug, Default, PartialEq)]
pub struct SliceChange {
    /// New slices.
    pub create: Vec<Value>,
    /// Slices that change, with their names.
    pub replace: Vec<(String, Value)>,
    /// Slices that go.
    pub delete: Vec<String>,
}

fn first_address(endpoint: &Value) -> &str {
    list(&endpoint["addresses"]).first().and_then(Value::as_str).unwrap_or_default()
}

/// Compares the slices that are there with the endpoints that are to be. An endpoint stays in its slice.
#[must_use]
pub fn change(owner: &SliceOwner<'_>, groups: &[Group], known: &[&Object]) -> SliceChange {
    let mut change = SliceChange::default();
    let mut labels = owner.labels.clone();
    labels.insert(SERVICE.to_owned(), owner.object.meta.name.to_string());
    labels.insert(MANAGED_BY.to_owned(), owner.manager.to_owned());
    let mut left: BTreeSet<&str> = known.iter().map(|slice| &*slice.meta.name).collect();
    for group in groups {
        let same = |slice: &&&Object| {
            slice.text("/addressType") == group.family
                && !slice.meta.is_deleting()
                && is_equal(slice.at("/ports"), &json!(group.ports))
        };
        let mut missing: BTreeMap<&str, &Value> =
            group.endpoints.iter().map(|(ip, endpoint)| (ip.as_str(), endpoint)).collect();
        let mut slices: Vec<(&Object, Vec<Value>)> = Vec::new();
        for slice in known.iter().filter(same) {
            let kept = slice
                .list("/endpoints")
                .iter()
                .filter_map(|endpoint| missing.remove(first_address(endpoint)));
            slices.push((*slice, kept.cloned().collect()));
        }
        let mut rest = missing.into_values().cloned();
        for (slice, endpoints) in &mut slices {
            endpoints.extend(rest.by_ref().take(MOST.saturating_sub(endpoints.len())));
            // One stays, even if it is empty.
            let is_kept = !endpoints.is_empty() || group.endpoints.is_empty();
            if !is_kept || !left.remove(&*slice.meta.name) {
                continue;
            }
            let has_labels = labels.iter().all(|(key, value)| slice.meta.label(key) == Some(value))
                && slice.meta.labels.len() == labels.len();
            if !has_labels || !is_equal(slice.at("/endpoints"), &json!(endpoints)) {
                let mut value = slice.value.clone();
                value["endpoints"] = json!(endpoints);
                value["metadata"]["labels"] = json!(labels);
                change.replace.push((slice.meta.name.to_string(), value));
            }
        }
        let rest: Vec<Value> = rest.collect();
        let none: &[Value] = &[];
        let is_first = slices.is_empty() && rest.is_empty();
        for endpoints in rest.chunks(MOST).chain(is_first.then_some(none)) {
            let meta = &owner.object.meta;
            change.create.push(json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
                "metadata": {"generateName": format!("{}-", meta.name), "namespace": meta.namespace, "labels": labels,
                    "ownerReferences": [controller_reference(owner.api_version, owner.kind, meta)]},
                "addressType": group.family, "endpoints": endpoints, "ports": group.ports}));
        }
    }
    change.delete = left.into_iter().map(str::to_owned).collect();
    change
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::{Value, json};

    use super::{Group, SliceChange, SliceOwner, change};
    use crate::workloads::object::Object;

    fn group(port: i64, ips: std::ops::Range<u32>) -> Group {
        let endpoints =
            ips.map(|ip| (format!("10.0.0.{ip}"), json!({"addresses": [format!("10.0.0.{ip}")]})));
        Group { family: "IPv4", ports: vec![json!({"port": port})], endpoints: endpoints.collect() }
    }

    fn planned(groups: &[Group], known: &[Object]) -> SliceChange {
        let service = Object::of(json!({"metadata": {"name": "svc", "namespace": "n", "uid": "u"}})).unwrap();
        let owner = SliceOwner {
            api_version: "v1",
            kind: "Service",
            object: &service,
            manager: "m",
            labels: BTreeMap::new(),
        };
        change(&owner, groups, &known.iter().collect::<Vec<_>>())
    }

    /// The slices that come of a change, named by their number.
    fn stored(change: &SliceChange) -> Vec<Object> {
        let named = |(at, slice): (usize, &Value)| {
            let mut slice = slice.clone();
            slice["metadata"]["name"] = json!(format!("s{at}"));
            Object::of(slice).unwrap()
        };
        change.create.iter().enumerate().map(named).collect()
    }

    fn sizes(slices: &[Value]) -> Vec<usize> {
        slices.iter().map(|slice| slice["endpoints"].as_array().unwrap().len()).collect()
    }

    #[test]
    fn an_endpoint_stays_in_its_slice() {
        let first = planned(&[group(80, 0..150)], &[]);
        assert_eq!(sizes(&first.create), [100, 50]);
        let known = stored(&first);
        assert_eq!(planned(&[group(80, 0..150)], &known), SliceChange::default(), "nothing changes");
        let more = planned(&[group(80, 0..151)], &known);
        assert_eq!((more.create.len(), more.replace.len(), more.replace[0].0.as_str()), (0, 1, "s1"));
        let fewer = planned(&[group(80, 0..100)], &known);
        let names: Vec<&str> = fewer.replace.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!((names, fewer.delete.len()), (vec!["s0"], 0), "the other one keeps its endpoints");
        let other = planned(&[group(90, 0..1)], &known);
        assert_eq!((sizes(&other.create), other.delete.len()), (vec![1], 2), "slices of other ports go");
    }

    #[test]
    fn a_service_without_pods_has_an_empty_slice() {
        let none = Group { ports: Vec::new(), ..group(80, 0..0) };
        let first = planned(std::slice::from_ref(&none), &[]);
        assert_eq!(sizes(&first.create), [0]);
        let labels = &first.create[0]["metadata"]["labels"];
        assert_eq!(
            *labels,
            json!({"kubernetes.io/service-name": "svc", "endpointslice.kubernetes.io/managed-by": "m"})
        );
        assert_eq!(planned(&[none], &stored(&first)), SliceChange::default());
    }
}
