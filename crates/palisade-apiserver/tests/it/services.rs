//! Services get addresses and node ports; that of the API server is there from the start.

use palisade_apiserver::Server;
use palisade_testkit::eventually;
use serde_json::{Value, json};

use crate::support::{admin, get, send, start};

const SERVICES: &str = "/api/v1/namespaces/default/services";

fn service(name: &str, spec: &Value) -> Value {
    json!({"metadata": {"name": name}, "spec": spec})
}

#[tokio::test]
async fn the_service_of_the_server_leads_to_it() {
    let server = start(Server::builder()).await;
    let client = admin(&server);
    let found = get(&client, &format!("{SERVICES}/kubernetes")).await.body;
    assert_eq!(found["spec"]["clusterIP"], "10.96.0.1", "{found}");
    let port = json!(server.address.port());
    let endpoints = get(&client, "/api/v1/namespaces/default/endpoints/kubernetes").await.body;
    assert_eq!(endpoints["subsets"][0]["ports"][0]["port"], port, "{endpoints}");
    let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
    let slice = get(&client, &format!("{slices}/kubernetes")).await.body;
    assert_eq!(slice["ports"][0]["port"], port, "{slice}");
    let range = get(&client, "/apis/networking.k8s.io/v1/servicecidrs/kubernetes").await.body;
    assert_eq!(range["status"]["conditions"][0]["type"], "Ready", "{range}");
}

#[tokio::test]
async fn addresses_and_ports_are_given_once() {
    let server = start(Server::builder()).await;
    let client = admin(&server);
    let ports = json!([{"port": 80}]);
    let first =
        send(&client, "POST", SERVICES, &service("a", &json!({"type": "NodePort", "ports": ports}))).await;
    assert_eq!(first.code, 201, "{}", first.body);
    let (address, port) = (&first.body["spec"]["clusterIP"], &first.body["spec"]["ports"][0]["nodePort"]);
    for (case, spec, field) in [
        ("the address", json!({"clusterIP": address, "ports": ports}), "spec.clusterIPs"),
        (
            "the port",
            json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": port}]}),
            "spec.ports[0].nodePort",
        ),
    ] {
        let answer = send(&client, "POST", SERVICES, &service("b", &spec)).await;
        assert_eq!(
            (answer.code, &answer.body["details"]["causes"][0]["field"]),
            (422, &json!(field)),
            "{case}"
        );
    }
    let dry = format!("{SERVICES}?dryRun=All");
    assert_eq!(send(&client, "POST", &dry, &service("c", &json!({"ports": ports}))).await.code, 201);
    let replaced =
        send(&client, "PUT", &format!("{SERVICES}/a"), &service("a", &json!({"ports": ports}))).await;
    assert_eq!(&replaced.body["spec"]["clusterIP"], address, "a PUT without an address keeps it");
    assert!(replaced.body["spec"]["ports"][0].get("nodePort").is_none(), "{}", replaced.body);

    let object = format!("/apis/networking.k8s.io/v1/ipaddresses/{}", address.as_str().expect("an address"));
    eventually("the address is listed", async || (get(&client, &object).await.code == 200).then_some(()))
        .await;
    assert_eq!(send(&client, "DELETE", &format!("{SERVICES}/a"), &Value::Null).await.code, 200);
    eventually("the address is free", async || (get(&client, &object).await.code == 404).then_some(())).await;
    let again =
        send(&client, "POST", SERVICES, &service("d", &json!({"clusterIP": address, "ports": ports}))).await;
    assert_eq!(again.code, 201, "{}", again.body);
}
