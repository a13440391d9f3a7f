//! Templates in, text out, as Go's text/template, Sprig and Helm write it; and where each byte comes from.

use std::collections::BTreeMap;

use palisade_helm::{Chart, Engine, Limits, Rendering, Target};
use serde_json::{Value, json};

fn chart_of(templates: &[(&str, &str)], values: &str) -> Chart {
    let mut files = BTreeMap::from([
        ("Chart.yaml".to_owned(), b"name: shop\nversion: 1.2.3\nappVersion: \"7\"\n".to_vec()),
        ("values.yaml".to_owned(), values.as_bytes().to_vec()),
        ("files/a.txt".to_owned(), b"one\ntwo".to_vec()),
    ]);
    for (name, text) in templates {
        files.insert(format!("templates/{name}"), text.as_bytes().to_vec());
    }
    Chart::load("shop", &files).expect("a chart")
}

fn rendered(chart: &Chart, values: &Value) -> Rendering {
    let has_api = |wanted: &str| wanted == "apps/v1";
    let target = Target {
        release: "r",
        namespace: "ns",
        kubernetes: (1, 37),
        is_upgrade: false,
        may_refuse: true,
        has_api: &has_api,
        limits: Limits::default(),
    };
    Engine::new(chart).render(values, &target, None)
}

/// The text of a template, or why there is none.
fn text(template: &str, values: &str) -> String {
    let chart = chart_of(&[("a.yaml", template)], values);
    let rendering = rendered(&chart, &json!({}));
    match (rendering.templates.first(), rendering.errors.first()) {
        (Some(template), _) => template.text().to_owned(),
        (None, Some(error)) => format!("error: {}", error.kind),
        (None, None) => String::new(),
    }
}

const VALUES: &str = "\
s: hello
num: 3
f: 1.5
big: 1000000
t: true
z: null
l: [a, b, c]
m: {x: 1, w: {z: deep}}
e: {}
";

#[test]
fn templates_render_as_go_and_helm_do() {
    for (template, expected) in [
        // Helm splits manifests at three dashes, whatever comes after them.
        (
            "---a: 1\n---# b\nb: |\n  ---c\n--- # d\n----\n",
            "---\na: 1\n---\n# b\nb: |\n  ---c\n--- # d\n---\n-\n",
        ),
        ("a: ---b\n", "a: ---b\n"),
        (
            "{{ 0x10 }} {{ 0x1p4 }} {{ 0X1.8p+1 }} {{ -0x3p-1 }} {{ 0x1p60 | int64 }}",
            "16 16 3 -1.5 1152921504606846976",
        ),
        // A pipe with nothing behind it.
        ("{{ .Values.num | }} {{ (1 |) }}", "3 1"),
        // Actions and trimming.
        ("a {{- /* no */ -}} b", "ab"),
        ("a {{ \"x\" -}}  b", "a xb"),
        ("{{ .Values.s }} {{ .Values.num }} {{ .Values.big }} {{ .Values.f }}", "hello 3 1000000 1.5"),
        ("[{{ .Values.z }}{{ .Values.missing }}]", "[]"),
        (
            "{{ if .Values.t }}y{{ else }}n{{ end }}{{ if .Values.e }}y{{ else if .Values.num }}m{{ end }}",
            "ym",
        ),
        (
            "{{ with .Values.m }}{{ .w.z }}{{ else }}no{{ end }}{{ with .Values.e }}x{{ else with .Values.s }}{{ . }}{{ end }}",
            "deephello",
        ),
        ("{{ range $i, $v := .Values.l }}{{ $i }}{{ $v }},{{ end }}", "0a,1b,2c,"),
        (
            "{{ range $k, $v := .Values.m }}{{ $k }};{{ end }}{{ range .Values.e }}x{{ else }}none{{ end }}",
            "w;x;none",
        ),
        ("{{ range .Values.l }}{{ if eq . \"b\" }}{{ continue }}{{ end }}{{ . }}{{ end }}", "ac"),
        ("{{ range .Values.l }}{{ if eq . \"b\" }}{{ break }}{{ end }}{{ . }}{{ end }}", "a"),
        ("{{ $x := 1 }}{{ if true }}{{ $x = 2 }}{{ $x := 3 }}{{ end }}{{ $x }}", "2"),
        (
            "{{ define \"t\" }}<{{ . }}>{{ end }}{{ template \"t\" .Values.s }}{{ include \"t\" 1 | upper }}",
            "<hello><1>",
        ),
        ("{{ block \"b\" .Values.num }}n={{ . }}{{ end }}", "n=3"),
        ("{{ (index .Values.l 1) }}{{ index .Values.m \"w\" \"z\" }}{{ (.Values.nothing).at.all }}", "bdeep"),
        ("{{ and .Values.t .Values.s }} {{ or .Values.z .Values.num }} {{ not .Values.e }}", "hello 3 true"),
        ("{{ and false (fail \"not run\") }}", "false"),
        (
            "{{ eq .Values.num 3 }} {{ eq .Values.s \"x\" \"hello\" }} {{ ne 1 2 }} {{ lt 1 2 }} {{ ge 2 2 }}",
            "true true true true true",
        ),
        (
            "{{ printf \"%s-%d %05.1f|%-4s|%4s|%q|%v|%%\" .Values.s 7 2.25 \"a\" \"b\" \"c\" .Values.l }}",
            "hello-7 002.2|a   |   b|\"c\"|[a b c]|%",
        ),
        ("{{ printf \"%d\" .Values.s }}", "%!d(string=hello)"),
        ("{{ print 1 2 \"a\" \"b\" 3 }}", "1 2ab3"),
        ("{{ len .Values.l }}{{ len .Values.s }}{{ 'a' }}{{ 0x1F }}{{ `raw\\n` }}", "359731raw\\n"),
        // Sprig.
        (
            "{{ default \"d\" .Values.missing }} {{ .Values.s | default \"d\" }} {{ coalesce .Values.z .Values.s }}",
            "d hello hello",
        ),
        (
            "{{ \"a-b_c\" | replace \"-\" \".\" | trunc 3 | trimSuffix \".\" }}{{ trunc -2 \"hello\" }}",
            "a.blo",
        ),
        (
            "{{ list 1 2 3 | join \"-\" }} {{ splitList \",\" \"a,b\" | last }} {{ (split \":\" \"x:y\")._1 }}",
            "1-2-3 b y",
        ),
        (
            "{{ dict \"a\" 1 \"b\" 2 | keys | sortAlpha | join \",\" }} {{ hasKey .Values.m \"x\" }} {{ get .Values.m \"x\" }}",
            "a,b true 1",
        ),
        (
            "{{ $d := dict \"a\" (dict \"b\" 1) }}{{ $_ := set $d \"c\" 2 }}{{ merge $d (dict \"a\" (dict \"b\" 9 \"z\" 3)) | toJson }}",
            "{\"a\":{\"b\":1,\"z\":3},\"c\":2}",
        ),
        (
            "{{ mergeOverwrite (dict \"a\" 1) (dict \"a\" 2) | toJson }} {{ dig \"w\" \"z\" \"no\" .Values.m }} {{ pluck \"x\" .Values.m | first }}",
            "{\"a\":2} deep 1",
        ),
        (
            "{{ omit .Values.m \"w\" | toJson }}{{ pick .Values.m \"x\" | toJson }}{{ without .Values.l \"a\" | join \"\" }}{{ has \"b\" .Values.l }}",
            "{\"x\":1}{\"x\":1}bctrue",
        ),
        (
            "{{ ternary \"y\" \"n\" .Values.t }} {{ kindOf .Values.l }} {{ kindIs \"map\" .Values.m }} {{ typeOf .Values.s }}",
            "y slice true string",
        ),
        (
            "{{ add 1 2 3 }} {{ sub 5 2 }} {{ mul 2 3 }} {{ div 7 2 }} {{ mod 7 2 }} {{ max 1 9 3 }} {{ int \"42\" }} {{ int64 .Values.big }}",
            "6 3 6 3 1 9 42 1000000",
        ),
        ("{{ until 3 | join \",\" }} {{ untilStep 2 8 3 }} {{ seq 1 3 }}", "0,1,2 [2 5] 1 2 3"),
        (
            "{{ \"hello world\" | title }} {{ camelcase \"foo_bar\" }} {{ snakecase \"FooBar\" }} {{ kebabcase \"FooBar\" }}",
            "Hello World FooBar foo_bar foo-bar",
        ),
        (
            "{{ quote .Values.s .Values.num }} {{ squote \"x\" }} {{ cat \"a\" \"b\" }} {{ nospace \"a b\" }}",
            "\"hello\" \"3\" 'x' a b ab",
        ),
        ("{{ b64enc \"hi\" }} {{ b64dec \"aGk=\" }} {{ sha256sum \"\" | trunc 8 }}", "aGk= hi e3b0c442"),
        (
            "{{ regexReplaceAll \"(a)(b)\" \"xab\" \"${2}${1}\" }} {{ regexMatch \"^h\" .Values.s }} {{ regexFind \"l+\" .Values.s }}",
            "xba true ll",
        ),
        (
            "{{ semverCompare \">=1.19-0\" .Capabilities.KubeVersion.GitVersion }} {{ (semver \"1.2.3\").Minor }}",
            "true 2",
        ),
        // YAML and JSON.
        ("{{ toYaml .Values.m }}", "w:\n  z: deep\nx: 1"),
        (
            "{{ toYaml (dict \"a\" (list 1 (dict \"b\" 2)) \"c\" \"true\" \"d\" \"\" \"e\" list \"f\" dict) }}",
            "a:\n- 1\n- b: 2\nc: \"true\"\nd: \"\"\ne: []\nf: {}",
        ),
        ("{{ toYaml (dict \"a\" \"x\\ny\\n\") }}", "a: |\n  x\n  y"),
        (
            "{{ (fromYaml \"a: {b: [1, yes]}\").a.b | toJson }}{{ (fromJson \"{\\\"a\\\": 1}\").a }}",
            "[1,true]1",
        ),
        ("a:{{ toYaml .Values.l | nindent 2 }}", "a:\n  - a\n  - b\n  - c"),
        // Helm.
        (
            "{{ .Release.Name }} {{ .Release.Namespace }} {{ .Chart.Name }} {{ .Chart.AppVersion }} {{ .Template.Name }}",
            "r ns shop 7 shop/templates/a.yaml",
        ),
        (
            "{{ .Capabilities.APIVersions.Has \"apps/v1\" }} {{ .Capabilities.KubeVersion.Minor }} {{ lookup \"v1\" \"Secret\" \"a\" \"b\" }}",
            "true 37 map[]",
        ),
        (
            "{{ .Files.Get \"files/a.txt\" | nindent 1 }}{{ range $p, $_ := .Files.Glob \"files/*\" }}{{ $p }}{{ end }}",
            "\n one\n twofiles/a.txt",
        ),
        ("{{ (.Files.Glob \"files/*.txt\").AsConfig }}", "a.txt: |-\n  one\n  two"),
        (
            "{{ tpl \"{{ .Values.s }}!\" . }}{{ include (print $.Template.BasePath \"/a.yaml\") . | empty | not | and false }}",
            "error: rendering takes more than 120 templates that call each other",
        ),
        ("{{ .Values.s.x }}", "error: cannot evaluate field x in a string"),
        ("{{ .Values.missing.x }}", "error: nil pointer evaluating .x"),
        ("{{ required \"set x\" .Values.x }}", "error: the chart fails: set x"),
        ("{{ nope 1 }}", "error: the function \"nope\" is not supported"),
        ("{{ $y }}", "error: undefined variable \"$y\""),
        ("{{ if true }}", "error: {{if}}, {{with}} or {{range}} without {{end}}"),
        ("{{ end }}", "error: unexpected {{end}} or {{else}}"),
        ("{{ \"a }}", "error: a string is not closed"),
        ("{{ div 1 0 }}", "error: div: division by zero"),
        ("{{ index .Values.l 9 }}", "error: index: index out of range"),
    ] {
        assert_eq!(text(template, VALUES), expected, "{template}");
    }
}

/// The lines of the template and the values behind a piece of the output.
fn source(template: &str, values: &str, piece: &str) -> (String, Vec<String>, Vec<String>) {
    let helpers = "{{- define \"h\" -}}\nkey: {{ .Values.h }}\nliteral: 1\n{{- end }}";
    let chart = chart_of(&[("a.yaml", template), ("_h.tpl", helpers)], values);
    let rendering = rendered(&chart, &json!({}));
    let output = rendering.templates.first().expect("an output");
    let at = output.text().find(piece).unwrap_or_else(|| panic!("{piece} in {}", output.text()));
    let source = rendering.source(output, at).expect("a source");
    let place = source.place;
    let line = place.text[..place.start].matches('\n').count() + 1;
    let joined = |paths: Vec<Vec<String>>| paths.iter().map(|path| path.join(".")).collect::<Vec<_>>();
    let file = place.file.rsplit('/').next().unwrap_or_default().to_owned();
    (format!("{file}:{line}"), joined(source.values), joined(source.conditions))
}

#[test]
fn every_byte_has_its_source() {
    let values = "a: one\nh: two\nflag: true\nm: {x: 1, w: {z: three}}\nl: [p, q]\n";
    for (template, piece, place, from, conditions) in [
        ("x: 1\ny: {{ .Values.a }}\n", "one", "a.yaml:2", "a", ""),
        ("x: 1\ny: {{ .Values.a }}\n", "y:", "a.yaml:2", "", ""),
        ("{{ if .Values.flag }}\nx: 1\n{{ end }}", "x", "a.yaml:2", "", "flag"),
        ("r:\n  {{- include \"h\" . | nindent 2 }}\n", "two", "_h.tpl:2", "h", ""),
        ("r:\n  {{- include \"h\" . | nindent 2 }}\n", "literal", "_h.tpl:3", "", ""),
        ("m:\n  {{- toYaml .Values.m | nindent 2 }}\n", "three", "a.yaml:2", "m.w.z", ""),
        ("m:\n  {{- toYaml .Values.m | nindent 2 }}\n", "x:", "a.yaml:2", "m.x", ""),
        ("{{ range .Values.l }}\n- {{ . }}\n{{ end }}", "q", "a.yaml:2", "l.[1]", "l"),
        ("{{ with .Values.m.w }}\nz: {{ .z | quote }}{{ end }}", "\"three\"", "a.yaml:2", "m.w.z", "m.w"),
        ("v: {{ tpl \"{{ .Values.a }}\" . }}", "one", "a.yaml:1", "a", ""),
        // What Helm takes for a separator is one, and what comes after it keeps its place.
        (
            "x: 1\n---\n{{- if .Values.flag }}\n# why\ny: {{ .Values.a }}\n{{ end }}",
            "one",
            "a.yaml:5",
            "a",
            "flag",
        ),
        ("x: 1\n---\n{{- if .Values.flag -}}\n# why\nk: 2\n{{ end }}", "k", "a.yaml:5", "", "flag"),
        ("{{ $m := fromYaml (include \"h\" .) }}\nk: {{ $m.key }}", "two", "a.yaml:2", "h", ""),
        ("{{ $x := merge (dict \"n\" 1) .Values.m }}\n{{ toYaml $x }}", "three", "a.yaml:2", "m.w.z", ""),
    ] {
        let found = source(template, values, piece);
        let list = |text: &str| if text.is_empty() { Vec::new() } else { vec![text.to_owned()] };
        assert_eq!(found, (place.to_owned(), list(from), list(conditions)), "{template}");
    }
}

#[test]
fn rendering_never_panics_on_odd_texts() {
    let pieces = [
        "{{", "}}", "-", " ", "$x", ":=", "if", "end", "range", "define", "\"a\"", "(", ")", "|", ".", "'",
        "`", "\\", "é", "\n", "include", "1", ",",
    ];
    // A small generator: the same texts each time.
    let mut state = 88_172_645_463_325_252_u64;
    for _ in 0..4_000 {
        let mut template = String::new();
        for _ in 0..12 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let index = usize::try_from(state % pieces.len() as u64).unwrap();
            template.push_str(pieces[index]);
        }
        text(&template, VALUES);
    }
}
