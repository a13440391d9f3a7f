//! What custom resource definitions cost: time until one is served, memory while it is, and what is left when it goes.

mod synthetic;

use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1::SendRequest;
use serde_json::Value;

use super::{Failure, Up, request, send};

const COUNT: usize = 95;
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const OBJECTS: usize = 2_000;

/// Prints a line: what, figure, target, whether it is met.
pub(super) type Print<'a> = &'a mut dyn FnMut(&str, String, &str, bool) -> std::io::Result<()>;

/// A connection that checks the code of each answer.
struct Client(SendRequest<Full<Bytes>>);

impl Client {
    async fn of(up: &Up) -> Result<Self, Failure> {
        Ok(Self(up.connect().await?))
    }

    async fn send(&mut self, method: &str, path: &str, kind: &str, body: String) -> Result<Bytes, Failure> {
        let (code, _, answer) = send(&mut self.0, request(method, path, kind, body)?).await?;
        if !matches!(code, 200 | 201) {
            let text = String::from_utf8_lossy(&answer);
            return Err(format!("{method} {path}: {code}: {}", text.get(..2_000).unwrap_or(&text)).into());
        }
        Ok(answer)
    }

    async fn get(&mut self, path: &str) -> Result<Bytes, Failure> {
        self.send("GET", path, "application/json", String::new()).await
    }

    async fn json(&mut self, path: &str) -> Result<Value, Failure> {
        Ok(serde_json::from_slice(&self.get(path).await?)?)
    }
}

/// A definition, ready to be sent.
struct Definition {
    name: String,
    group: String,
    version: String,
    plural: String,
    body: String,
}

impl Definition {
    fn new(value: &Value) -> Self {
        let text =
            |pointer: &str| value.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let versions = value["spec"]["versions"].as_array().map_or(&[][..], Vec::as_slice);
        let served = versions.iter().find(|version| version["served"] == true);
        Self {
            name: text("/metadata/name"),
            group: text("/spec/group"),
            version: served.and_then(|v| v["name"].as_str()).unwrap_or_default().to_owned(),
            plural: text("/spec/names/plural"),
            body: value.to_string(),
        }
    }

    /// Creates it, and waits until it is established and discovery has it. Then, on another clock, until OpenAPI has it.
    async fn serve(&self, client: &mut Client, apply: bool) -> Result<(Duration, Duration), Failure> {
        let began = Instant::now();
        if apply {
            let path = format!("{DEFINITIONS}/{}?fieldManager=measure", self.name);
            client.send("PATCH", &path, "application/apply-patch+yaml", self.body.clone()).await?;
        } else {
            client.send("POST", DEFINITIONS, "application/json", self.body.clone()).await?;
        }
        let resources = format!("/apis/{}/{}", self.group, self.version);
        while !client.json(&resources).await.is_ok_and(|found| {
            found["resources"].as_array().into_iter().flatten().any(|r| r["name"] == self.plural)
        }) {
            if began.elapsed() > Duration::from_mins(1) {
                return Err(format!("{} is not served", self.name).into());
            }
        }
        let served = began.elapsed();
        let index = client.json("/openapi/v3").await?;
        let url = &index["paths"][&format!("apis/{}/{}", self.group, self.version)]["serverRelativeURL"];
        let document = client.get(url.as_str().ok_or("OpenAPI does not list the group")?).await?;
        if memchr::memmem::find(&document, format!("/{}", self.plural).as_bytes()).is_none() {
            return Err(format!("OpenAPI does not describe {}", self.name).into());
        }
        Ok((served, began.elapsed()))
    }
}

fn synthetic_values() -> Vec<Value> {
    (0..COUNT).map(synthetic::definition).collect()
}

fn read(folder: &Path) -> Result<Vec<Value>, Failure> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        paths.push(entry?.path());
    }
    paths.sort();
    paths.iter().map(|path| Ok(serde_json::from_slice(&std::fs::read(path)?)?)).collect()
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// The middle and the longest.
fn spread(times: &[Duration]) -> (f64, f64) {
    let mut times = times.to_vec();
    times.sort_unstable();
    (
        ms(times.get(times.len() / 2).copied().unwrap_or_default()),
        ms(times.last().copied().unwrap_or_default()),
    )
}

async fn settled(up: &Up) -> f64 {
    tokio::time::sleep(Duration::from_secs(2)).await;
    up.memory()
}

/// Measures with the definitions of a folder (one JSON file each), or with made-up ones.
pub(super) async fn measure(palisade: &Path, folder: Option<&Path>, print: Print<'_>) -> Result<(), Failure> {
    let values = folder.map_or_else(|| Ok(synthetic_values()), read)?;
    let definitions: Vec<Definition> = values.iter().map(Definition::new).collect();
    let count = f64::from(u32::try_from(definitions.len())?);
    let bytes: usize = definitions.iter().map(|d| d.body.len()).sum();
    let up = Up::start(palisade, &[]).await?;
    let mut client = Client::of(&up).await?;
    // The documents about built-in kinds are made once and are not what definitions cost.
    client.get("/openapi/v3").await?;
    let before = settled(&up).await;
    let (mut served, mut described) = (Vec::new(), Vec::new());
    for (at, definition) in definitions.iter().enumerate() {
        let (in_discovery, in_openapi) = definition.serve(&mut client, at % 2 == 1).await?;
        served.push(in_discovery);
        described.push(in_openapi);
    }
    let each = (settled(&up).await - before) / count;
    let what =
        format!("{} definitions of {} KB together, one after the other", definitions.len(), bytes / 1000);
    let (median, worst) = spread(&served);
    let quarter = served.len() / 4;
    let (first, last) = (spread(&served[..quarter]).0, spread(&served[served.len() - quarter..]).0);
    let shown =
        format!("median {median:.1} ms, worst {worst:.1} ms; first quarter {first:.1} ms, last {last:.1} ms");
    print(&format!("{what}: until established and in discovery"), shown, "25 ms each", worst < 25.0)?;
    let (median, worst) = spread(&described);
    let shown = format!("median {median:.1} ms, worst {worst:.1} ms");
    print("the same, until OpenAPI v3 describes it", shown, "", true)?;
    print("memory of each of these definitions", format!("{each:.2} MB"), "0.5 MB", each < 0.5)?;
    documents(&up, &mut client, before, print).await?;
    if folder.is_none() {
        objects(&up, &values, print).await?;
    }
    removal(&up, &definitions, before, print).await?;
    drop(up);
    restart(palisade, &definitions, print).await
}

/// What clients request when all definitions are there.
async fn documents(up: &Up, client: &mut Client, before: f64, print: Print<'_>) -> Result<(), Failure> {
    let mut figures = Vec::new();
    let began = Instant::now();
    client.get(DEFINITIONS).await?;
    figures.push(format!("list {:.0} ms", ms(began.elapsed())));
    let began = Instant::now();
    client.get("/openapi/v2").await?;
    figures.push(format!("OpenAPI v2 {:.0} ms", ms(began.elapsed())));
    let began = Instant::now();
    let index = client.json("/openapi/v3").await?;
    for (_, entry) in index["paths"].as_object().into_iter().flatten() {
        client.get(entry["serverRelativeURL"].as_str().unwrap_or_default()).await?;
    }
    figures.push(format!("all of OpenAPI v3 {:.0} ms", ms(began.elapsed())));
    let began = Instant::now();
    let discovery = http::Request::get("/apis")
        .header("host", "localhost")
        .header("accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
        .body(Full::default())?;
    send(&mut client.0, discovery).await?;
    figures.push(format!("aggregated discovery {:.1} ms", ms(began.elapsed())));
    let more = settled(up).await - before;
    let shown = format!("{}; then {more:.0} MB more than without definitions", figures.join(", "));
    print("everything that clients read about these definitions", shown, "", true)?;
    Ok(())
}

/// Objects of the kind with the largest schema.
async fn objects(up: &Up, values: &[Value], print: Print<'_>) -> Result<(), Failure> {
    let largest = values.iter().max_by_key(|value| value.to_string().len()).ok_or("no definitions")?;
    let definition = Definition::new(largest);
    let path = format!("/apis/{}/v1/namespaces/default/{}", definition.group, definition.plural);
    let mut client = Client::of(up).await?;
    let mut rates = Vec::new();
    for (what, apply) in [("created", false), ("applied", true)] {
        let began = Instant::now();
        for index in 0..OBJECTS {
            let name = format!("{what}-{index}");
            let body = synthetic::object(largest, &name).to_string();
            if apply {
                let path = format!("{path}/{name}?fieldManager=measure");
                client.send("PATCH", &path, "application/apply-patch+yaml", body).await?;
            } else {
                client.send("POST", &path, "application/json", body).await?;
            }
        }
        rates.push(format!(
            "{:.0} {what}/s",
            f64::from(u32::try_from(OBJECTS)?) / began.elapsed().as_secs_f64()
        ));
    }
    let size = definition.body.len() / 1000;
    print(
        &format!("objects of a kind with {size} KB of schema, one connection"),
        rates.join(", "),
        "",
        true,
    )?;
    Ok(())
}

async fn removal(up: &Up, definitions: &[Definition], before: f64, print: Print<'_>) -> Result<(), Failure> {
    let mut client = Client::of(up).await?;
    let began = Instant::now();
    for definition in definitions {
        client
            .send("DELETE", &format!("{DEFINITIONS}/{}", definition.name), "application/json", String::new())
            .await?;
    }
    loop {
        let left = client.json(DEFINITIONS).await?;
        let left = left["items"].as_array().into_iter().flatten();
        let ours =
            left.filter(|item| definitions.iter().any(|d| item["metadata"]["name"] == d.name.as_str()));
        if ours.count() == 0 {
            break;
        }
        if began.elapsed() > Duration::from_mins(2) {
            return Err("definitions are not deleted".into());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let time = began.elapsed().as_secs_f64();
    let left = settled(up).await - before;
    print("all of them deleted", format!("{time:.1} s, {left:.0} MB more than before they came"), "", true)?;
    Ok(())
}

async fn restart(palisade: &Path, definitions: &[Definition], print: Print<'_>) -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let data = folder.path().join("data").display().to_string();
    let more = ["--data-dir", data.as_str()];
    let up = Up::start(palisade, &more).await?;
    let mut client = Client::of(&up).await?;
    let mut times = Vec::new();
    for definition in definitions {
        times.push(definition.serve(&mut client, false).await?.0);
    }
    drop(up);
    let up = Up::start(palisade, &more).await?;
    let (median, worst) = spread(&times);
    let shown = format!(
        "each median {median:.1} ms, worst {worst:.1} ms; start to /readyz {:.0} ms, {:.0} MB",
        ms(up.ready),
        settled(&up).await
    );
    print("the same definitions in a data directory, and a restart with them", shown, "", true)?;
    Ok(())
}
