//! Measures how fast a manifest is read: `cargo run --release -p palisade-yaml --example read_speed`.
#![allow(clippy::print_stdout, clippy::expect_used, clippy::disallowed_types)]

use std::{hint::black_box, time::Instant};

use palisade_yaml::{Limits, parse};

const MANIFEST: &str = r#"apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  namespace: shop
  labels:
    app.kubernetes.io/name: web
    app.kubernetes.io/part-of: shop
  annotations:
    example.com/owner: "team-shop"
spec:
  replicas: 3
  selector:
    matchLabels:
      app.kubernetes.io/name: web
  template:
    metadata:
      labels:
        app.kubernetes.io/name: web
    spec:
      serviceAccountName: web
      securityContext:
        runAsNonRoot: true
        runAsUser: 1000
        seccompProfile:
          type: RuntimeDefault
      containers:
      - name: web
        image: registry.example.com/shop/web:1.2.3 # pinned
        args: ["--listen", ":8080", "--verbose"]
        ports:
        - containerPort: 8080
          name: http
        env:
        - name: LOG_LEVEL
          value: "info"
        - name: POD_NAME
          valueFrom:
            fieldRef:
              fieldPath: metadata.name
        securityContext:
          allowPrivilegeEscalation: false
          readOnlyRootFilesystem: true
          capabilities:
            drop:
            - ALL
        resources:
          requests:
            cpu: 100m
            memory: 64Mi
          limits:
            memory: 128Mi
        readinessProbe:
          httpGet:
            path: /healthz
            port: http
        volumeMounts:
        - name: tmp
          mountPath: /tmp
      volumes:
      - name: tmp
        emptyDir: {}
"#;

fn main() {
    let limits = Limits::default();
    let json = {
        let parsed = parse(MANIFEST, &limits);
        let value = parsed.documents[0].root().to_json().expect("the manifest is fine");
        value.to_string()
    };
    for (name, text) in [("YAML", MANIFEST), ("JSON", json.as_str())] {
        measure(&format!("read {name}, {} bytes", text.len()), || {
            black_box(parse(black_box(text), &limits));
        });
        measure(&format!("read {name} and deserialize"), || {
            let parsed = parse(black_box(text), &limits);
            black_box(parsed.documents[0].root().to_json().expect("the manifest is fine"));
        });
    }
}

fn measure(name: &str, mut work: impl FnMut()) {
    const ROUNDS: u32 = 2000;
    let mut best = f64::MAX;
    for _ in 0..10 {
        let start = Instant::now();
        for _ in 0..ROUNDS {
            work();
        }
        best = best.min(start.elapsed().as_secs_f64() / f64::from(ROUNDS));
    }
    println!("{name}: {:.1} us", best * 1e6);
}
