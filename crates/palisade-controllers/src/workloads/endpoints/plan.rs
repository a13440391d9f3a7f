//! The endpoints of a Service. Pure.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::slices::Group;
use crate::workloads::{
    meta::Meta,
    object::{Object, list},
    pod::Pod,
};

/// On what belongs to a Service without an address of its own.
pub const HEADLESS: &str = "service.kubernetes.io/headless";
/// Of two kinds of Services with selectors, the ones that have endpoints.
#[must_use]
pub fn has_endpoints(service: &Object) -> bool {
    let selector = service.at("/spec/selector").as_object();
    selector.is_some_and(|selector| !selector.is_empty()) && service.text("/spec/type") != "ExternalName"
}

/// Whether a Service selects a pod.
#[must_use]
pub fn selects(service: &Object, pod: &Meta) -> bool {
    let selector = service.at("/spec/selector").as_object();
    selector.is_some_and(|selector| {
        !selector.is_empty() && selector.iter().all(|(key, value)| pod.label(key) == value.as_str())
    })
}

/// Whether the Service has no address of its own.
#[must_use]
pub fn is_headless(service: &Object) -> bool {
    service.text("/spec/clusterIP") == "None"
}

fn publishes_all(service: &Object) -> bool {
    service.at("/spec/publishNotReadyAddresses") == true
}

fn is_v6(ip: &str) -> bool {
    ip.contains(':')
}

/// The families of addresses that a Service has.
fn families(service: &Object) -> Vec<&'static str> {
    let listed = service.list("/spec/ipFamilies");
    let listed: Vec<&str> = listed
        .iter()
        .filter_map(|family| match family.as_str()? {
            "IPv4" => Some("IPv4"),
            "IPv6" => Some("IPv6"),
            _ => None,
        })
        .collect();
    if listed.is_empty() {
        vec![if is_v6(service.text("/spec/clusterIP")) { "IPv6" } else { "IPv4" }]
    } else {
        listed
    }
}

/// The first address of a family.
fn address<'p>(pod: &'p Pod, family: &str) -> Option<&'p str> {
    pod.ips.iter().map(|ip| &**ip).find(|ip| is_v6(ip) == (family == "IPv6"))
}

/// The ports of a Service as a pod has them; a port of a name that it does not have is left out.
fn ports(service: &Object, pod: &Pod) -> Vec<Value> {
    let find = |port: &Value| -> Option<i64> {
        let protocol = port["protocol"].as_str().unwrap_or("TCP");
        match &port["targetPort"] {
            Value::String(name) => {
                let found = pod.ports.iter().find(|one| {
                    let own = if one.protocol.is_empty() { "TCP" } else { &one.protocol };
                    *one.name == **name && own == protocol
                });
                found.map(|found| found.container_port)
            }
            number => number.as_i64().filter(|number| *number != 0).or_else(|| port["port"].as_i64()),
        }
    };
    let made = |port: &Value| {
        let number = find(port)?;
        let mut made = json!({"name": port["name"].as_str().unwrap_or_default(), "port": number,
            "protocol": port["protocol"].as_str().unwrap_or("TCP")});
        if port["appProtocol"].is_string() {
            made["appProtocol"] = port["appProtocol"].clone();
        }
        Some(made)
    };
    service.list("/spec/ports").iter().filter_map(made).collect()
}

fn target(pod: &Pod) -> Value {
    json!({"kind": "Pod", "namespace": pod.meta.namespace, "name": pod.meta.name, "uid": pod.meta.uid})
}

/// The hostname of a pod in the domain of a Service.
fn hostname<'p>(service: &Object, pod: &'p Pod) -> Option<&'p str> {
    (!pod.hostname.is_empty() && pod.subdomain == service.meta.name).then_some(&*pod.hostname)
}

/// The endpoints of a Service, by family and ports. `zone` is that of a node.
#[must_use]
pub fn groups(service: &Object, pods: &[&Pod], zone: impl Fn(&str) -> Option<String>) -> Vec<Group> {
    let mut groups: BTreeMap<(&str, String), Group> = BTreeMap::new();
    for family in families(service) {
        for pod in pods.iter().filter(|pod| !pod.is_finished()) {
            let Some(ip) = address(pod, family) else { continue };
            let is_terminating = pod.meta.is_deleting();
            let is_ready = publishes_all(service) || (pod.is_ready && !is_terminating);
            let mut endpoint = json!({"addresses": [ip],
                "conditions": {"ready": is_ready, "serving": pod.is_ready, "terminating": is_terminating},
                "targetRef": target(pod)});
            if !pod.node.is_empty() {
                endpoint["nodeName"] = json!(pod.node);
                if let Some(zone) = zone(&pod.node) {
                    endpoint["zone"] = json!(zone);
                }
            }
            if let Some(hostname) = hostname(service, pod) {
                endpoint["hostname"] = json!(hostname);
            }
            let ports = ports(service, pod);
            let key = (family, Value::from(ports.clone()).to_string());
            let group =
                groups.entry(key).or_insert_with(|| Group { family, ports, endpoints: BTreeMap::new() });
            group.endpoints.insert(ip.to_owned(), endpoint);
        }
    }
    // A family without endpoints has an empty slice.
    for family in families(service) {
        if !groups.keys().any(|(known, _)| *known == family) {
            let group = Group { family, ports: Vec::new(), endpoints: BTreeMap::new() };
            groups.insert((family, String::new()), group);
        }
    }
    groups.into_values().collect()
}

/// Addresses, after whether they are not ready.
type Addresses<'p> = BTreeMap<(bool, &'p str), Value>;

/// The subsets of the Endpoints of a Service: those of the first family.
#[must_use]
pub fn subsets(service: &Object, pods: &[&Pod]) -> Vec<Value> {
    let family = families(service).first().copied().unwrap_or("IPv4");
    let mut subsets: BTreeMap<String, (Vec<Value>, Addresses<'_>)> = BTreeMap::new();
    for pod in pods.iter().filter(|pod| !pod.is_finished()) {
        if pod.meta.is_deleting() && !publishes_all(service) {
            continue;
        }
        let Some(ip) = address(pod, family) else { continue };
        let mut address = json!({"ip": ip, "targetRef": target(pod)});
        if !pod.node.is_empty() {
            address["nodeName"] = json!(pod.node);
        }
        if let Some(hostname) = hostname(service, pod) {
            address["hostname"] = json!(hostname);
        }
        let mut ports = ports(service, pod);
        if ports.is_empty() && !service.list("/spec/ports").is_empty() {
            continue;
        }
        ports.sort_by_key(ToString::to_string);
        for port in &mut ports {
            if port["name"] == ""
                && let Some(port) = port.as_object_mut()
            {
                port.remove("name");
            }
        }
        let is_missing = !(publishes_all(service) || pod.is_ready);
        let key = Value::from(ports.clone()).to_string();
        let (_, addresses) = subsets.entry(key).or_insert_with(|| (ports, BTreeMap::new()));
        addresses.insert((is_missing, ip), address);
    }
    subsets
        .into_values()
        .map(|(ports, addresses)| {
            let mut subset = Map::new();
            let (missing, ready): (Vec<_>, Vec<_>) =
                addresses.into_iter().partition(|((is_missing, _), _)| *is_missing);
            for (key, list) in [("addresses", ready), ("notReadyAddresses", missing)] {
                if !list.is_empty() {
                    let list: Vec<Value> = list.into_iter().map(|(_, address)| address).collect();
                    subset.insert(key.to_owned(), list.into());
                }
            }
            if !ports.is_empty() {
                subset.insert("ports".to_owned(), ports.into());
            }
            subset.into()
        })
        .collect()
}

/// The endpoints of Endpoints that a user wrote, by family and ports.
#[must_use]
pub fn mirrored(endpoints: &Object) -> Vec<Group> {
    let mut groups: BTreeMap<(&str, String), Group> = BTreeMap::new();
    for subset in endpoints.list("/subsets") {
        for (key, is_ready) in [("addresses", true), ("notReadyAddresses", false)] {
            for address in list(&subset[key]) {
                let ip = address["ip"].as_str().unwrap_or_default();
                let family = if is_v6(ip) { "IPv6" } else { "IPv4" };
                let mut endpoint = json!({"addresses": [ip], "conditions": {"ready": is_ready}});
                for key in ["hostname", "nodeName", "targetRef"] {
                    if !address[key].is_null() {
                        endpoint[key] = address[key].clone();
                    }
                }
                let ports: Vec<Value> = list(&subset["ports"])
                    .iter()
                    .map(|port| {
                        let mut port = port.clone();
                        port["name"] = json!(port["name"].as_str().unwrap_or_default());
                        port
                    })
                    .collect();
                let key = (family, Value::from(ports.clone()).to_string());
                let group =
                    groups.entry(key).or_insert_with(|| Group { family, ports, endpoints: BTreeMap::new() });
                group.endpoints.insert(ip.to_owned(), endpoint);
            }
        }
    }
    groups.into_values().collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{groups, mirrored, subsets};
    use crate::workloads::{mirror::Mirrored as _, object::Object, pod::Pod};

    fn service(more: &Value) -> Object {
        let mut spec = json!({"selector": {"a": "b"}, "clusterIP": "10.0.0.1", "ports": [
            {"port": 80, "targetPort": "http"}, {"name": "metrics", "port": 90, "targetPort": 9090, "appProtocol": "http"}]});
        for (key, value) in more.as_object().into_iter().flatten() {
            spec[key] = value.clone();
        }
        Object::of(json!({"metadata": {"name": "svc", "namespace": "n"}, "spec": spec})).unwrap()
    }

    fn pod(name: &str, ip: &str, port: i64, is_ready: bool, is_deleting: bool) -> Pod {
        let mut metadata = json!({"name": name, "uid": name, "namespace": "n"});
        if is_deleting {
            metadata["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        let status = json!({"phase": "Running", "podIP": ip, "conditions": [{"type": "Ready", "status": if is_ready { "True" } else { "False" }}]});
        let spec = json!({"nodeName": "n1", "hostname": "h", "subdomain": "svc", "containers": [{"ports": [{"name": "http", "containerPort": port}]}]});
        Pod::read(&json!({"metadata": metadata, "spec": spec, "status": status}).to_string()).unwrap()
    }

    #[test]
    fn endpoints_have_the_ports_and_the_state_of_their_pods() {
        let pods = [
            pod("a", "10.1.0.1", 8080, true, false),
            pod("b", "10.1.0.2", 8081, false, false),
            pod("c", "10.1.0.3", 8080, true, true),
            pod("d", "", 8080, false, false),
        ];
        let pods: Vec<&Pod> = pods.iter().collect();
        let found = groups(&service(&json!({})), &pods, |_| Some("z".to_owned()));
        assert_eq!(found.len(), 2, "one for each list of ports");
        assert_eq!(found[0].ports[0], json!({"name": "", "port": 8080, "protocol": "TCP"}));
        assert_eq!(
            found[0].ports[1],
            json!({"name": "metrics", "port": 9090, "protocol": "TCP", "appProtocol": "http"})
        );
        let conditions =
            |ip: &str| found.iter().find_map(|group| group.endpoints.get(ip)).unwrap()["conditions"].clone();
        assert_eq!(conditions("10.1.0.1"), json!({"ready": true, "serving": true, "terminating": false}));
        assert_eq!(conditions("10.1.0.2"), json!({"ready": false, "serving": false, "terminating": false}));
        assert_eq!(conditions("10.1.0.3"), json!({"ready": false, "serving": true, "terminating": true}));
        let first = &found[0].endpoints["10.1.0.1"];
        assert_eq!(
            (&first["hostname"], &first["zone"], &first["nodeName"]),
            (&json!("h"), &json!("z"), &json!("n1"))
        );
        let empty = groups(&service(&json!({"ipFamilies": ["IPv6"]})), &pods, |_| None);
        assert_eq!((empty[0].family, empty[0].endpoints.len()), ("IPv6", 0), "there is always a slice");
    }

    #[test]
    fn subsets_list_what_is_not_ready_apart() {
        let pods = [
            pod("b", "10.1.0.2", 8080, true, false),
            pod("a", "10.1.0.1", 8080, true, false),
            pod("c", "10.1.0.3", 8080, false, false),
            pod("d", "10.1.0.4", 8080, true, true),
        ];
        let pods: Vec<&Pod> = pods.iter().collect();
        let found = subsets(&service(&json!({})), &pods);
        let ips = |key: &str| {
            let list = found[0][key].as_array().unwrap();
            list.iter().map(|one| one["ip"].as_str().unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(
            (found.len(), ips("addresses"), ips("notReadyAddresses")),
            (1, vec!["10.1.0.1", "10.1.0.2"], vec!["10.1.0.3"])
        );
        let all = subsets(&service(&json!({"publishNotReadyAddresses": true})), &pods);
        assert_eq!(all[0]["addresses"].as_array().unwrap().len(), 4);
    }

    #[test]
    fn what_users_write_is_mirrored() {
        let endpoints = Object::of(
            json!({"metadata": {"name": "x"}, "subsets": [{"addresses": [{"ip": "10.0.0.1"}, {"ip": "::1"}],
            "notReadyAddresses": [{"ip": "10.0.0.2"}], "ports": [{"port": 80, "protocol": "TCP"}]}]}),
        )
        .unwrap();
        let found = mirrored(&endpoints);
        assert_eq!(
            found.iter().map(|group| (group.family, group.endpoints.len())).collect::<Vec<_>>(),
            [("IPv4", 2), ("IPv6", 1)]
        );
        assert_eq!(found[0].endpoints["10.0.0.2"]["conditions"]["ready"], false);
        assert_eq!(found[0].ports, [json!({"name": "", "port": 80, "protocol": "TCP"})]);
    }
}
