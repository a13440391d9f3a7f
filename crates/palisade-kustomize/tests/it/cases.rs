//! Kustomizations by hand, in the shapes of public ones.

pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) root: &'static str,
    /// Whether kustomize rejects it.
    pub(crate) fails: bool,
    pub(crate) files: &'static [(&'static str, &'static str)],
}

const fn case(
    name: &'static str,
    root: &'static str,
    files: &'static [(&'static str, &'static str)],
) -> Case {
    Case { name, root, fails: false, files }
}

const fn fails(
    name: &'static str,
    root: &'static str,
    files: &'static [(&'static str, &'static str)],
) -> Case {
    Case { name, root, fails: true, files }
}

const WEB: &str = "\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  labels: {app: web}
spec:
  replicas: 1
  selector:
    matchLabels: {app: web}
  template:
    metadata:
      labels: {app: web}
    spec:
      serviceAccountName: web
      securityContext:
        runAsNonRoot: true
      containers:
      - name: web
        image: nginx:1.25
        ports:
        - containerPort: 8080
        env:
        - name: A
          value: \"1\"
        - name: B
          valueFrom: {configMapKeyRef: {name: settings, key: b}}
        securityContext:
          privileged: false
          capabilities: {drop: [ALL]}
      - name: proxy
        image: registry.example.com:5000/proxy@sha256:0123
      volumes:
      - name: data
        emptyDir: {}
      - name: settings
        configMap: {name: settings}
---
apiVersion: v1
kind: Service
metadata:
  name: web
spec:
  selector: {app: web}
  ports:
  - port: 80
---
apiVersion: v1
kind: ServiceAccount
metadata:
  name: web
";

const RBAC: &str = "\
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: reader}
rules: []
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: readers}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: reader}
subjects:
- {kind: ServiceAccount, name: web, namespace: default}
- {kind: ServiceAccount, name: default, namespace: default}
- {kind: User, name: jane}
---
apiVersion: v1
kind: Namespace
metadata: {name: shop}
";

const CRON: &str = "\
apiVersion: batch/v1
kind: CronJob
metadata: {name: cron}
spec:
  schedule: '0 0 * * *'
  jobTemplate:
    spec:
      template:
        spec:
          restartPolicy: Never
          initContainers:
          - {name: init, image: busybox}
          containers:
          - {name: job, image: busybox:1}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  serviceName: web
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      affinity:
        podAntiAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
          - labelSelector: {matchLabels: {app: db}}
            topologyKey: zone
      containers:
      - {name: db, image: postgres}
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {}
";

const BASE: (&str, &str) = ("base/kustomization.yaml", "resources:\n- web.yaml\n");
const BASE_WEB: (&str, &str) = ("base/web.yaml", WEB);

pub(crate) const CASES: &[Case] = &[
    case("resources alone", "base", &[BASE, BASE_WEB]),
    case(
        "a base of a base",
        "o",
        &[
            BASE,
            BASE_WEB,
            ("mid/kustomization.yml", "bases: [../base]\nnamePrefix: mid-\n"),
            ("o/Kustomization", "kind: Kustomization\nresources: [../mid]\nnameSuffix: -o\n"),
        ],
    ),
    case(
        "names of prefix and suffix, with references",
        "o",
        &[
            BASE,
            BASE_WEB,
            ("o/kustomization.yaml", "resources: [../base, rbac.yaml]\nnamePrefix: a-\nnameSuffix: -z\n"),
            ("o/rbac.yaml", RBAC),
        ],
    ),
    case(
        "a namespace",
        "o",
        &[
            BASE,
            BASE_WEB,
            ("o/kustomization.yaml", "resources: [../base, rbac.yaml]\nnamespace: prod\n"),
            ("o/rbac.yaml", RBAC),
        ],
    ),
    case(
        "common labels and annotations",
        "o",
        &[
            BASE,
            BASE_WEB,
            (
                "o/kustomization.yaml",
                "resources: [../base, cron.yaml]\ncommonLabels: {team: shop}\ncommonAnnotations: {note: text}\n",
            ),
            ("o/cron.yaml", CRON),
        ],
    ),
    case(
        "labels with and without selectors and templates",
        "o",
        &[
            BASE,
            BASE_WEB,
            (
                "o/kustomization.yaml",
                "resources: [../base, cron.yaml]\nlabels:\n- pairs: {a: b}\n- pairs: {c: d}\n  includeSelectors: true\n- pairs: {e: f}\n  includeTemplates: true\n",
            ),
            ("o/cron.yaml", CRON),
        ],
    ),
    case(
        "images",
        "o",
        &[
            BASE,
            BASE_WEB,
            (
                "o/kustomization.yaml",
                "resources: [../base, cron.yaml]\nimages:\n- name: nginx\n  newName: mirror.example.com/nginx\n  newTag: '1.27'\n- name: registry.example.com:5000/proxy\n  newTag: v2\n- name: busybox\n  digest: sha256:abcd\n- name: postgres\n  newName: pg\n",
            ),
            ("o/cron.yaml", CRON),
        ],
    ),
    case(
        "replicas",
        "o",
        &[
            BASE,
            BASE_WEB,
            (
                "o/kustomization.yaml",
                "resources: [../base, cron.yaml]\nnamePrefix: x-\nreplicas:\n- {name: web, count: 3}\n- {name: db, count: 0}\n",
            ),
            ("o/cron.yaml", CRON),
        ],
    ),
    case(
        "a strategic merge patch in a file",
        "o",
        &[
            BASE,
            BASE_WEB,
            ("o/kustomization.yaml", "resources: [../base]\npatches:\n- path: patch.yaml\n"),
            (
                "o/patch.yaml",
                "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: web\nspec:\n  template:\n    spec:\n      hostNetwork: true\n      containers:\n      - name: web\n        args: [a]\n        env:\n        - name: A\n          value: '2'\n        - name: C\n          value: '3'\n        securityContext:\n          privileged: true\n          capabilities: {add: [NET_ADMIN]}\n      - name: extra\n        image: extra\n      volumes:\n      - name: data\n        hostPath: {path: /}\n        emptyDir: null\n",
            ),
        ],
    ),
    case(
        "an inline patch that deletes and replaces",
        "o",
        &[
            BASE,
            BASE_WEB,
            (
                "o/kustomization.yaml",
                "resources: [../base]\npatches:\n- patch: |-\n    apiVersion: apps/v1\n    kind: Deployment\n    metadata:\n      name: web\n    spec:\n      template:\n        spec:\n          securityContext:\n            $patch: replace\n            runAsUser: 0\n          containers:\n          - name: proxy\n            $patch: delete\n          - name: web\n            securityContext:\n              $patch: delete\n          volumes:\n          - $patch: replace\n          - name: only\n            emptyDir: {}\n- patch: |-\n    apiVersion: v1\n    kind: Service\n    metadata:\n      name: web\n    $patch: delete\n",
            ),
        ],
    ),
    case(
        "null removes a field",
        "o",
        &[
            BASE,
            BASE_WEB,
            (
                "o/kustomization.yaml",
                "resources: [../base]\npatchesStrategicMerge:\n- patch.yaml\n- |-\n  apiVersion: v1\n  kind: Service\n  metadata: {name: web, annotations: {a: b}}\n",
            ),
            (
                "o/patch.yaml",
                "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec:\n  replicas: null\n  template:\n    spec:\n      securityContext: {runAsNonRoot: null}\n      containers:\n      - name: web\n        securityContext: {privileged: null, runAsUser: null}\n",
            ),
        ],
    ),
    case(
        "JSON patches",
        "o",
        &[
            BASE,
            BASE_WEB,
            (
                "o/kustomization.yaml",
                "resources: [../base]\npatches:\n- path: patch.json\n  target: {kind: Deployment}\npatchesJson6902:\n- target: {version: v1, kind: Service, name: web}\n  patch: |-\n    - {op: add, path: /metadata/labels, value: {a: b}}\n    - {op: test, path: /spec/ports/0/port, value: 80}\n    - {op: copy, from: /spec/selector, path: /metadata/annotations}\n    - {op: move, from: /metadata/labels/a, path: /metadata/labels/c~1d}\n",
            ),
            (
                "o/patch.json",
                "[{\"op\": \"replace\", \"path\": \"/spec/template/spec/containers/0/securityContext/privileged\", \"value\": true}, {\"op\": \"add\", \"path\": \"/spec/template/spec/containers/-\", \"value\": {\"name\": \"x\", \"image\": \"x\"}}, {\"op\": \"remove\", \"path\": \"/spec/template/spec/volumes/0\"}]",
            ),
        ],
    ),
    case(
        "targets by expression, label and annotation",
        "o",
        &[
            BASE,
            BASE_WEB,
            ("o/cron.yaml", CRON),
            (
                "o/kustomization.yaml",
                "resources: [../base, cron.yaml]\npatches:\n- target: {group: apps, kind: Deployment|StatefulSet, name: 'w.*'}\n  patch: |-\n    - {op: add, path: /metadata/annotations, value: {by: name}}\n- target: {labelSelector: 'app=web'}\n  patch: |-\n    apiVersion: apps/v1\n    kind: Any\n    metadata: {name: any, labels: {by: label}}\n- target: {annotationSelector: 'by=name'}\n  patch: |-\n    apiVersion: apps/v1\n    kind: Any\n    metadata: {name: any, labels: {and: annotation}}\n- target: {name: we}\n  patch: |-\n    - {op: remove, path: /spec}\n- target: {kind: CronJob}\n  patch: |-\n    apiVersion: batch/v1\n    kind: CronJob\n    metadata: {name: x}\n    spec: {jobTemplate: {spec: {template: {spec: {hostPID: true}}}}}\n",
            ),
        ],
    ),
    case(
        "a patch that renames",
        "o",
        &[
            BASE,
            BASE_WEB,
            (
                "o/kustomization.yaml",
                "resources: [../base]\npatches:\n- target: {kind: ServiceAccount}\n  options: {allowNameChange: true}\n  patch: |-\n    apiVersion: v1\n    kind: ServiceAccount\n    metadata: {name: renamed}\n",
            ),
        ],
    ),
    case(
        "generators",
        "o",
        &[
            BASE,
            BASE_WEB,
            (
                "o/kustomization.yaml",
                "resources: [../base]\nnamePrefix: p-\ngeneratorOptions:\n  labels: {generated: 'yes'}\nconfigMapGenerator:\n- name: settings\n  literals: [b=1, \"c='<q>'\"]\n  files: [file.txt, key=file.txt]\n- name: plain\n  envs: [app.env]\n  options: {disableNameSuffixHash: true, immutable: true}\nsecretGenerator:\n- name: password\n  type: Opaque\n  literals: [password=x]\n",
            ),
            ("o/file.txt", "one\ntwo & three\n"),
            ("o/app.env", "# comment\nA=1\n\nB=two words\n"),
        ],
    ),
    case(
        "a generator that merges",
        "o",
        &[
            ("base/kustomization.yaml", "configMapGenerator:\n- name: settings\n  literals: [a=1, b=2]\n"),
            (
                "o/kustomization.yaml",
                "resources: [../base]\nconfigMapGenerator:\n- name: settings\n  behavior: merge\n  literals: [b=3, c=4]\n",
            ),
        ],
    ),
    case(
        "a component",
        "o",
        &[
            BASE,
            BASE_WEB,
            (
                "comp/kustomization.yaml",
                "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\nresources: [cm.yaml]\npatches:\n- target: {kind: Deployment}\n  patch: |-\n    - {op: replace, path: /spec/replicas, value: 7}\n",
            ),
            ("comp/cm.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {a: b}\n"),
            (
                "o/kustomization.yaml",
                "resources: [../base]\ncomponents: [../comp]\nnamePrefix: o-\nnamespace: prod\n",
            ),
        ],
    ),
    case(
        "replacements",
        "o",
        &[
            BASE,
            BASE_WEB,
            (
                "o/kustomization.yaml",
                "resources: [../base, cron.yaml]\nreplacements:\n- source: {kind: Deployment, name: web, fieldPath: 'spec.template.spec.containers.[name=web].image', options: {delimiter: ':', index: 1}}\n  targets:\n  - select: {kind: CronJob}\n    fieldPaths: ['spec.jobTemplate.spec.template.spec.containers.*.image']\n    options: {delimiter: ':', index: 1}\n- source: {kind: Service, fieldPath: metadata.name}\n  targets:\n  - select: {kind: StatefulSet}\n    fieldPaths: ['metadata.annotations.[example.com/service]', spec.template.spec.serviceAccountName]\n    options: {create: true}\n- path: r.yaml\n",
            ),
            ("o/cron.yaml", CRON),
            (
                "o/r.yaml",
                "source: {kind: ServiceAccount, name: web}\ntargets:\n- select: {kind: Deployment}\n  fieldPaths: ['spec.template.spec.containers.[name=proxy].image']\n",
            ),
        ],
    ),
    case(
        "two overlays of one base",
        "all",
        &[
            BASE,
            BASE_WEB,
            (
                "a/kustomization.yaml",
                "resources: [../base]\nnamePrefix: a-\nconfigMapGenerator:\n- {name: settings, literals: [b=a]}\n",
            ),
            (
                "b/kustomization.yaml",
                "resources: [../base]\nnamePrefix: b-\nconfigMapGenerator:\n- {name: settings, literals: [b=b]}\n",
            ),
            ("all/kustomization.yaml", "resources: [../a, ../b]\nnamespace: both\n"),
        ],
    ),
    case(
        "a patch by the name of a base",
        "o",
        &[
            BASE,
            BASE_WEB,
            ("mid/kustomization.yaml", "resources: [../base]\nnamePrefix: m-\nnamespace: ns\n"),
            (
                "o/kustomization.yaml",
                "resources: [../mid]\npatches:\n- patch: |-\n    apiVersion: apps/v1\n    kind: Deployment\n    metadata: {name: web}\n    spec: {replicas: 4}\n- patch: |-\n    apiVersion: v1\n    kind: Service\n    metadata: {name: m-web, namespace: ns}\n    spec: {type: NodePort}\n",
            ),
        ],
    ),
    case(
        "lists of custom resources are replaced",
        "o",
        &[
            (
                "o/kustomization.yaml",
                "resources: [x.yaml]\npatches:\n- patch: |-\n    apiVersion: example.com/v1\n    kind: App\n    metadata: {name: x}\n    spec: {containers: [{name: b, image: c}], keep: {b: 2}}\n",
            ),
            (
                "o/x.yaml",
                "apiVersion: example.com/v1\nkind: App\nmetadata: {name: x}\nspec: {containers: [{name: a, image: a}], keep: {a: 1}}\n",
            ),
        ],
    ),
    case(
        "items of lists, and what stays local",
        "o",
        &[
            ("o/kustomization.yaml", "resources: [list.yaml]\nnamePrefix: l-\n"),
            (
                "o/list.yaml",
                "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: ConfigMap\n  metadata: {name: a}\n- apiVersion: v1\n  kind: ConfigMap\n  metadata: {name: b, annotations: {config.kubernetes.io/local-config: 'true'}}\n",
            ),
        ],
    ),
    case(
        "ports are the same by port and protocol",
        "o",
        &[
            BASE,
            BASE_WEB,
            (
                "o/kustomization.yaml",
                "resources: [../base]\npatches:\n- patch: |-\n    apiVersion: apps/v1\n    kind: Deployment\n    metadata: {name: web}\n    spec: {template: {spec: {containers: [{name: web, ports: [{containerPort: 8080, hostPort: 80}, {containerPort: 9090, name: metrics}]}]}}}\n",
            ),
        ],
    ),
    case(
        "a protocol that only the patch names",
        "o",
        &[
            BASE,
            BASE_WEB,
            (
                "o/kustomization.yaml",
                "resources: [../base]\npatches:\n- patch: |-\n    apiVersion: apps/v1\n    kind: Deployment\n    metadata: {name: web}\n    spec: {template: {spec: {containers: [{name: web, ports: [{containerPort: 8080, protocol: TCP, hostPort: 80}]}]}}}\n",
            ),
        ],
    ),
    case(
        "sort options, metadata and build metadata",
        "o",
        &[
            BASE,
            BASE_WEB,
            (
                "o/kustomization.yaml",
                "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nmetadata: {name: x}\nsortOptions: {order: fifo}\nresources: [../base]\n",
            ),
        ],
    ),
    case(
        "a patch with several documents",
        "o",
        &[
            BASE,
            BASE_WEB,
            ("o/kustomization.yaml", "resources: [../base]\npatches:\n- path: patch.yaml\n"),
            (
                "o/patch.yaml",
                "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {replicas: 2}\n---\napiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {type: NodePort}\n",
            ),
        ],
    ),
    fails(
        "a patch for nothing",
        "o",
        &[
            BASE,
            BASE_WEB,
            (
                "o/kustomization.yaml",
                "resources: [../base]\npatches:\n- patch: '{apiVersion: v1, kind: Pod, metadata: {name: other}}'\n",
            ),
        ],
    ),
    fails(
        "the same object twice",
        "o",
        &[BASE, BASE_WEB, ("o/kustomization.yaml", "resources: [../base, web.yaml]\n"), ("o/web.yaml", WEB)],
    ),
    fails(
        "a file of another folder",
        "o",
        &[BASE, BASE_WEB, ("o/kustomization.yaml", "resources: [../base/web.yaml]\n")],
    ),
    fails(
        "a component as a resource",
        "o",
        &[
            ("comp/kustomization.yaml", "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\n"),
            ("o/kustomization.yaml", "resources: [../comp]\n"),
        ],
    ),
    fails(
        "a key twice",
        "o",
        &[
            ("o/kustomization.yaml", "resources: [x.yaml]\n"),
            ("o/x.yaml", "apiVersion: v1\nkind: ConfigMap\nkind: Secret\nmetadata: {name: x}\n"),
        ],
    ),
];
