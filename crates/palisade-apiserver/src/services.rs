//! Addresses and node ports of Services, and the Service of the API server itself.
//!
//! Implements: Kubernetes Service, "Service ClusterIP allocation" and "Choosing your own port".
//! <https://kubernetes.io/docs/concepts/services-networking/cluster-ip-allocation/>
//!
//! What is taken is read from the stored Services each time, so that nothing has to agree with them. A [`Claim`] holds what was
//! chosen until the Service is stored. Nothing routes these addresses.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use palisade_apimachinery::kinds::service::{
    is_headless, needs_address, needs_health_port, needs_node_ports,
};
use palisade_apimachinery::{Kind, Status};
use palisade_base::field_error::FieldError;
use serde_json::{Value, json};

use crate::api::Api;
use crate::meta;
use crate::registry::Entry;
use crate::server::bootstrap;
use crate::storage::{Expect, Object, Range, lock};
use crate::verbs::write;

/// The addresses of Services.
const NETWORK: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 0);
const PREFIX: u32 = 12;
/// The address of the API server's own Service, the first of the network.
const KUBERNETES: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);
/// Addresses and ports at the beginning are given out last: people choose theirs among them.
const CHOSEN_ADDRESSES: u32 = 256;
const PORTS: std::ops::RangeInclusive<u16> = 30_000..=32_767;
const CHOSEN_PORTS: u16 = 86;

/// What is taken: by stored Services, or by a [`Claim`].
#[derive(Debug, Default, Clone)]
struct Taken {
    addresses: BTreeSet<Ipv4Addr>,
    ports: BTreeSet<u16>,
}

impl Taken {
    /// What a Service has.
    fn of(service: &Value) -> Self {
        let empty = Value::Null;
        let spec = service.get("spec").unwrap_or(&empty);
        let address = spec.get("clusterIP").and_then(Value::as_str);
        // swallowed: an empty address and `None` are no addresses
        let addresses = address.and_then(|address| address.parse().ok()).into_iter().collect();
        let ports = spec.get("ports").and_then(Value::as_array).into_iter().flatten();
        let ports = ports.map(|port| port.get("nodePort")).chain([spec.get("healthCheckNodePort")]);
        // swallowed: the decoder rejects what is no number, and validation what is no port
        let ports = ports.filter_map(|port| port?.as_u64().and_then(|port| u16::try_from(port).ok()));
        Self { addresses, ports: ports.filter(|port| *port != 0).collect() }
    }

    fn add(&mut self, other: &Self) {
        self.addresses.extend(&other.addresses);
        self.ports.extend(&other.ports);
    }
}

/// What has been chosen and is not stored yet.
#[derive(Debug, Default, Clone)]
pub(crate) struct Allocator {
    claimed: Arc<Mutex<Taken>>,
}

/// Addresses and ports of a Service on its way into the store; another one may have them when this is dropped.
#[derive(Debug)]
pub(crate) struct Claim {
    claimed: Arc<Mutex<Taken>>,
    taken: Taken,
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut claimed = lock(&self.claimed);
        claimed.addresses.retain(|address| !self.taken.addresses.contains(address));
        claimed.ports.retain(|port| !self.taken.ports.contains(port));
    }
}

/// Gives a Service the addresses and ports that it needs; those that it names must be free.
pub(crate) fn allocate(
    api: &Api,
    kind: &Kind,
    object: &mut Value,
    old: Option<&Value>,
) -> Result<Option<Claim>, Box<Status>> {
    if !kind.group.is_empty() || kind.plural != "services" {
        return Ok(None);
    }
    let name = meta::meta_text(object, "name").to_owned();
    let uid = meta::meta_text(object, "uid").to_owned();
    let mut claimed = lock(&api.services.claimed);
    let mut taken = claimed.clone();
    for stored in api.store.bucket("services").list(&Range::All).objects {
        if stored.uid() != uid {
            taken.add(&stored.view(|json| read(json)));
        }
    }
    let own = old.map(Taken::of).unwrap_or_default();
    let Some(spec) = object.get_mut("spec").filter(|spec| spec.is_object()) else { return Ok(None) };
    let chosen = choose(spec, &taken, &own, kind.emulated.at_least(23));
    let chosen =
        chosen.map_err(|error| Status::invalid(kind.kind_name(), &name, &[*error], kind.emulated))?;
    claimed.add(&chosen);
    Ok(Some(Claim { claimed: api.services.claimed.clone(), taken: chosen }))
}

fn read(json: &[u8]) -> Taken {
    // swallowed: the store made these bytes from an object, or read them when it opened
    serde_json::from_slice(json).map(|service| Taken::of(&service)).unwrap_or_default()
}

/// Chooses what a spec leaves open and checks what it names; what is new is returned.
fn choose(spec: &mut Value, taken: &Taken, own: &Taken, families: bool) -> Result<Taken, Box<FieldError>> {
    let mut chosen = Taken::default();
    if needs_address(spec) && !is_headless(spec) {
        let named = spec.get("clusterIP").and_then(Value::as_str).unwrap_or_default().to_owned();
        // swallowed: what is no address has been rejected
        let address = match named.parse::<Ipv4Addr>().ok() {
            Some(address) if own.addresses.contains(&address) => address,
            Some(address) => free_address(address, taken)?,
            None => next_address(taken).ok_or_else(|| {
                Box::new(invalid("spec.clusterIPs", json!([named]), "failed to allocate IP: range is full"))
            })?,
        };
        chosen.addresses.insert(address);
        spec["clusterIP"] = address.to_string().into();
        if families {
            spec["clusterIPs"] = json!([address.to_string()]);
        }
    }
    if needs_node_ports(spec) {
        choose_ports(spec, taken, own, &mut chosen)?;
    }
    if needs_health_port(spec) {
        let named = spec.get("healthCheckNodePort").and_then(Value::as_u64).unwrap_or(0);
        let port = choose_port("spec.healthCheckNodePort", named, taken, own, &chosen)?;
        chosen.ports.insert(port);
        spec["healthCheckNodePort"] = port.into();
    }
    Ok(chosen)
}

fn choose_ports(
    spec: &mut Value,
    taken: &Taken,
    own: &Taken,
    chosen: &mut Taken,
) -> Result<(), Box<FieldError>> {
    let mut made: Vec<(u64, String, u16)> = Vec::new();
    let ports = spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten();
    for (i, port) in ports.enumerate() {
        let number = |field: &str| port.get(field).and_then(Value::as_u64).unwrap_or(0);
        let (target, named) = (number("port"), number("nodePort"));
        let protocol = port.get("protocol").and_then(Value::as_str).unwrap_or_default().to_owned();
        let field = format!("spec.ports[{i}].nodePort");
        // One port of the nodes may serve several protocols of one Service, each of them once.
        let same = made.iter().find(|(other, spoken, node_port)| {
            *spoken != protocol && if named == 0 { *other == target } else { u64::from(*node_port) == named }
        });
        let repeated =
            |node_port: u16| made.iter().any(|(_, spoken, other)| *spoken == protocol && *other == node_port);
        let node_port = match same.map(|(_, _, node_port)| *node_port) {
            Some(node_port) if !repeated(node_port) => node_port,
            _ => choose_port(&field, named, taken, own, chosen)?,
        };
        chosen.ports.insert(node_port);
        made.push((target, protocol, node_port));
        port["nodePort"] = node_port.into();
    }
    Ok(())
}

fn choose_port(
    field: &str,
    named: u64,
    taken: &Taken,
    own: &Taken,
    chosen: &Taken,
) -> Result<u16, Box<FieldError>> {
    let is_taken = |port: &u16| taken.ports.contains(port) || chosen.ports.contains(port);
    if named == 0 {
        let (first, last) = (*PORTS.start(), *PORTS.end());
        let start = first + CHOSEN_PORTS;
        let random = u16::try_from(meta::random_below(u32::from(last - start) + 1)).unwrap_or(0);
        let mut order = (start + random..=last).chain(start..start + random).chain(first..start);
        let free = order.find(|port| !is_taken(port) && !own.ports.contains(port));
        return free
            .ok_or_else(|| Box::new(invalid(field, 0, "failed to allocate a nodePort: range is full")));
    }
    // swallowed: no port has such a number
    let port = u16::try_from(named).ok().filter(|port| PORTS.contains(port));
    let port = port.ok_or_else(|| {
        let why = format!(
            "provided port is not in the valid range. The range of valid ports is {}-{}",
            PORTS.start(),
            PORTS.end()
        );
        Box::new(invalid(field, Value::from(named), why))
    })?;
    // Another update of this Service may hold what is its own.
    if chosen.ports.contains(&port) || (is_taken(&port) && !own.ports.contains(&port)) {
        return Err(Box::new(invalid(field, Value::from(named), "provided port is already allocated")));
    }
    Ok(port)
}

fn invalid(field: &str, value: impl Into<Value>, why: impl Into<Cow<'static, str>>) -> FieldError {
    FieldError::invalid(field, value.into(), why)
}

fn offset(address: Ipv4Addr) -> Option<u32> {
    let offset = u32::from(address).checked_sub(u32::from(NETWORK))?;
    (offset > 0 && offset < (1 << (32 - PREFIX)) - 1).then_some(offset)
}

fn free_address(address: Ipv4Addr, taken: &Taken) -> Result<Ipv4Addr, Box<FieldError>> {
    let why = if offset(address).is_none() {
        "the provided network does not match the current range"
    } else if taken.addresses.contains(&address) {
        "provided IP is already allocated"
    } else {
        return Ok(address);
    };
    let why = format!("failed to allocate IP {address}: {why}");
    Err(Box::new(invalid("spec.clusterIPs", json!([address.to_string()]), why)))
}

fn next_address(taken: &Taken) -> Option<Ipv4Addr> {
    let size = (1 << (32 - PREFIX)) - 1;
    let random = CHOSEN_ADDRESSES + meta::random_below(size - CHOSEN_ADDRESSES);
    let mut order = (random..size).chain(CHOSEN_ADDRESSES..random).chain(2..CHOSEN_ADDRESSES);
    order.find_map(|offset| {
        let address = Ipv4Addr::from(u32::from(NETWORK) + offset);
        (!taken.addresses.contains(&address)).then_some(address)
    })
}

const MANAGED_BY: &str = "ipaddress.kubernetes.io/managed-by";
const ALLOCATOR: &str = "ipallocator.k8s.io";

/// Every address of a Service has its `IPAddress`, and no other that this server made stays.
pub(crate) async fn sync_addresses(api: &Arc<Api>, seen: &mut [u64; 2]) {
    let served = api.registry.served();
    let Some(entry) = served.find("networking.k8s.io", "v1", "ipaddresses") else { return };
    let services = api.store.bucket("services");
    let now = [services.changed_at(), entry.bucket.changed_at()];
    if std::mem::replace(seen, now) == now {
        return;
    }
    let services = services.list(&Range::All).objects;
    let owner = |address: Ipv4Addr| {
        services.iter().find(|service| service.view(|json| read(json)).addresses.contains(&address))
    };
    for known in entry.bucket.list(&Range::All).objects {
        // swallowed: the name of one that somebody else made
        let address = known.name().parse().ok();
        if known.label(MANAGED_BY) == Some(ALLOCATOR) && address.and_then(owner).is_none() {
            let last = entry.typed(known.parse());
            // A change meanwhile is seen in the next round.
            let _ =
                write::commit(api, entry, known.key(), Expect::Revision(known.revision), last, true).await;
        }
    }
    for service in &services {
        for address in &service.view(|json| read(json)).addresses {
            bootstrap::put(api, entry, "", address_object(*address, service)).await;
        }
    }
    *seen = [api.store.bucket("services").changed_at(), entry.bucket.changed_at()];
}

fn address_object(address: Ipv4Addr, service: &Object) -> Value {
    json!({
        "metadata": {"name": address.to_string(),
            "labels": {"ipaddress.kubernetes.io/ip-family": "IPv4", MANAGED_BY: ALLOCATOR}},
        "spec": {"parentRef": {"resource": "services", "namespace": service.namespace(), "name": service.name()}},
    })
}

/// Makes the Service `kubernetes` with its endpoints, and the range of addresses. What an earlier start with another address
/// left is brought up to date.
pub(crate) async fn install(api: &Arc<Api>) {
    let served = api.registry.served();
    // swallowed: a server in this process has no address, and so no endpoints
    let address = api.address.parse::<SocketAddr>().ok();
    let port = address.map_or(443, |address| address.port());
    let cidr = format!("{NETWORK}/{PREFIX}");
    if let Some(entry) = served.find("networking.k8s.io", "v1", "servicecidrs") {
        let ready = json!({"type": "Ready", "status": "True", "lastTransitionTime": meta::now(), "reason": "",
            "message": "Kubernetes default Service CIDR is ready"});
        let range = json!({"metadata": {"name": "kubernetes"}, "spec": {"cidrs": [cidr]}});
        put(api, entry, "", range, &[]).await;
        let status = json!({"conditions": [ready]});
        if let Some(stored) = entry.bucket.get("kubernetes").filter(|stored| !stored.mentions("conditions")) {
            let mut range = entry.typed(stored.parse());
            range["status"] = status;
            replace(api, entry, &stored, range).await;
        }
    }
    if let Some(entry) = served.find("", "v1", "services") {
        let service = json!({
            "metadata": {"name": "kubernetes", "labels": {"component": "apiserver", "provider": "kubernetes"}},
            "spec": {"type": "ClusterIP", "clusterIP": KUBERNETES.to_string(), "sessionAffinity": "None",
                "ports": [{"name": "https", "protocol": "TCP", "port": 443, "targetPort": port}]},
        });
        put(api, entry, "default", service, &["/spec/ports"]).await;
    }
    let Some(address) = address else { return };
    let ip = address.ip().to_string();
    if let Some(entry) = served.find("", "v1", "endpoints") {
        let endpoints = json!({
            "metadata": {"name": "kubernetes", "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}},
            "subsets": [{"addresses": [{"ip": ip}], "ports": [{"name": "https", "port": port, "protocol": "TCP"}]}],
        });
        put(api, entry, "default", endpoints, &["/subsets"]).await;
    }
    if let Some(entry) = served.find("discovery.k8s.io", "v1", "endpointslices") {
        let family = if address.is_ipv4() { "IPv4" } else { "IPv6" };
        let slice = json!({
            "metadata": {"name": "kubernetes", "labels": {"kubernetes.io/service-name": "kubernetes"}},
            "addressType": family,
            "endpoints": [{"addresses": [ip], "conditions": {"ready": true}}],
            "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
        });
        put(api, entry, "default", slice, &["/endpoints", "/ports"]).await;
    }
}

/// Makes an object, or brings parts of the stored one up to date.
async fn put(api: &Arc<Api>, entry: &Entry, namespace: &str, object: Value, parts: &[&str]) {
    let key = entry.key(namespace, meta::meta_text(&object, "name"));
    let Some(stored) = entry.bucket.get(&key) else {
        return bootstrap::put(api, entry, namespace, object).await;
    };
    let mut current = entry.typed(stored.parse());
    let before = current.clone();
    for part in parts {
        if let (Some(current), Some(wanted)) = (current.pointer_mut(part), object.pointer(part)) {
            *current = wanted.clone();
        }
    }
    if current != before {
        replace(api, entry, &stored, current).await;
    }
}

async fn replace(api: &Api, entry: &Entry, stored: &Object, object: Value) {
    let expect = Expect::Revision(stored.revision);
    if let Err(error) = write::commit(api, entry, stored.key(), expect, object, false).await {
        tracing::error!(resource = %entry.kind.plural, key = stored.key(), %error, "cannot update an object");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(addresses: &[&str], ports: &[u16]) -> Taken {
        let addresses = addresses.iter().map(|address| address.parse().expect("an address")).collect();
        Taken { addresses, ports: ports.iter().copied().collect() }
    }

    fn error(spec: Value, taken: &Taken) -> String {
        let mut spec = spec;
        choose(&mut spec, taken, &Taken::default(), true).expect_err("an error").to_string()
    }

    #[test]
    fn what_is_named_must_be_free_and_in_range() {
        let taken = taken(&["10.96.0.5"], &[30_100]);
        for (spec, expected) in [
            (
                json!({"type": "ClusterIP", "clusterIP": "10.96.0.5"}),
                "spec.clusterIPs: Invalid value: [\"10.96.0.5\"]: failed to allocate IP 10.96.0.5: provided IP is \
                 already allocated",
            ),
            (
                json!({"type": "ClusterIP", "clusterIP": "1.2.3.4"}),
                "spec.clusterIPs: Invalid value: [\"1.2.3.4\"]: failed to allocate IP 1.2.3.4: the provided network \
                 does not match the current range",
            ),
            (
                json!({"type": "NodePort", "ports": [{"port": 80, "protocol": "TCP", "nodePort": 30100}]}),
                "spec.ports[0].nodePort: Invalid value: 30100: provided port is already allocated",
            ),
            (
                json!({"type": "NodePort", "ports": [{"port": 80, "protocol": "TCP", "nodePort": 80}]}),
                "spec.ports[0].nodePort: Invalid value: 80: provided port is not in the valid range. The range of \
                 valid ports is 30000-32767",
            ),
            (
                json!({"type": "NodePort", "ports": [{"port": 80, "protocol": "TCP", "nodePort": 30102},
                    {"port": 81, "protocol": "TCP", "nodePort": 30102}]}),
                "spec.ports[1].nodePort: Invalid value: 30102: provided port is already allocated",
            ),
        ] {
            assert_eq!(error(spec.clone(), &taken), expected, "{spec}");
        }
    }

    #[test]
    fn what_is_left_open_is_chosen() {
        let mut spec = json!({"type": "NodePort", "ports": [{"port": 80, "protocol": "TCP"},
            {"port": 80, "protocol": "UDP"}, {"port": 81, "protocol": "TCP"}]});
        let chosen = choose(&mut spec, &Taken::default(), &Taken::default(), true).expect("chosen");
        let port = |i: usize| spec["ports"][i]["nodePort"].as_u64().expect("a port");
        assert_eq!(port(0), port(1), "one port for both protocols");
        assert_ne!(port(0), port(2));
        assert_eq!((chosen.addresses.len(), chosen.ports.len()), (1, 2));
        assert_eq!(spec["clusterIPs"], json!([spec["clusterIP"]]));
    }

    #[test]
    fn services_without_an_address_get_none() {
        for spec in [
            json!({"type": "ExternalName", "externalName": "a.b"}),
            json!({"type": "ClusterIP", "clusterIP": "None"}),
        ] {
            let mut changed = spec.clone();
            let chosen = choose(&mut changed, &Taken::default(), &Taken::default(), true).expect("chosen");
            assert!(chosen.addresses.is_empty() && chosen.ports.is_empty());
            assert_eq!(changed, spec);
        }
    }

    #[test]
    fn an_update_keeps_its_own() {
        let own = taken(&["10.96.7.7"], &[30_100]);
        let mut spec = json!({"type": "NodePort", "clusterIP": "10.96.7.7",
            "ports": [{"port": 80, "protocol": "TCP", "nodePort": 30100}]});
        choose(&mut spec, &Taken::default(), &own, true).expect("chosen");
        assert_eq!((&spec["clusterIP"], &spec["ports"][0]["nodePort"]), (&json!("10.96.7.7"), &json!(30100)));
    }
}
