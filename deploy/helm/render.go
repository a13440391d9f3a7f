// Renders the chart with Go's template engine, which is Helm's, and the few functions of Helm that the chart uses.
// The values are the chart's defaults, read from values.yaml by the small reader below: maps, lists and scalars in block
// style, which is all that file has.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"text/template"
)

type line struct {
	indent int
	text   string
}

func lines(path string) []line {
	file, err := os.Open(path)
	if err != nil {
		panic(err)
	}
	defer file.Close()
	var found []line
	scanner := bufio.NewScanner(file)
	for scanner.Scan() {
		text := strings.TrimLeft(scanner.Text(), " ")
		if text == "" || strings.HasPrefix(text, "#") {
			continue
		}
		found = append(found, line{len(scanner.Text()) - len(text), text})
	}
	return found
}

func scalar(text string) interface{} {
	switch text {
	case "true":
		return true
	case "false":
		return false
	case "{}":
		return map[string]interface{}{}
	case "[]":
		return []interface{}{}
	case `""`:
		return ""
	}
	if number, err := strconv.Atoi(text); err == nil {
		return number
	}
	return strings.Trim(text, `"`)
}

func read(rest []line, indent int) (interface{}, []line) {
	if strings.HasPrefix(rest[0].text, "- ") {
		list := []interface{}{}
		for len(rest) > 0 && rest[0].indent == indent && strings.HasPrefix(rest[0].text, "- ") {
			rest[0] = line{indent + 2, rest[0].text[2:]}
			var item interface{}
			item, rest = read(rest, indent+2)
			list = append(list, item)
		}
		return list, rest
	}
	fields := map[string]interface{}{}
	for len(rest) > 0 && rest[0].indent == indent && !strings.HasPrefix(rest[0].text, "- ") {
		at := strings.Index(rest[0].text, ":")
		key, value := rest[0].text[:at], strings.TrimSpace(rest[0].text[at+1:])
		rest = rest[1:]
		if value != "" {
			fields[key] = scalar(value)
			continue
		}
		fields[key], rest = read(rest, rest[0].indent)
	}
	return fields, rest
}

func main() {
	chart, namespace := os.Args[1], os.Args[2]
	values, _ := read(lines(filepath.Join(chart, "values.yaml")), 0)
	about, _ := read(lines(filepath.Join(chart, "Chart.yaml")), 0)
	functions := template.FuncMap{
		// JSON is YAML, on one line.
		"toYaml": func(value interface{}) (string, error) {
			switch value := value.(type) {
			case map[string]interface{}:
				return block(value)
			}
			text, err := json.Marshal(value)
			return string(text), err
		},
		"nindent": func(by int, text string) string {
			pad := strings.Repeat(" ", by)
			return "\n" + pad + strings.ReplaceAll(text, "\n", "\n"+pad)
		},
		"default": func(other, value interface{}) interface{} {
			if value == nil || value == "" {
				return other
			}
			return value
		},
		// The oldest API server the chart is for.
		"semverCompare": func(constraint, version string) bool { return strings.HasPrefix(constraint, "<") },
	}
	// What is switched on besides.
	for _, group := range os.Args[3:] {
		values.(map[string]interface{})[group].(map[string]interface{})["enabled"] = true
	}
	files, err := filepath.Glob(filepath.Join(chart, "templates", "*.yaml"))
	if err != nil {
		panic(err)
	}
	sort.Strings(files)
	data := map[string]interface{}{
		"Values":       values,
		"Release":      map[string]interface{}{"Namespace": namespace},
		"Chart":        map[string]interface{}{"AppVersion": about.(map[string]interface{})["appVersion"]},
		"Capabilities": map[string]interface{}{"KubeVersion": map[string]interface{}{"Version": "v1.24.0"}},
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			panic(err)
		}
		var out bytes.Buffer
		parsed := template.Must(template.New(file).Option("missingkey=error").Funcs(functions).Parse(string(text)))
		if err := parsed.Execute(&out, data); err != nil {
			panic(err)
		}
		fmt.Printf("---\n%s\n", out.String())
	}
}

func block(fields map[string]interface{}) (string, error) {
	keys := make([]string, 0, len(fields))
	for key := range fields {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	var rows []string
	for _, key := range keys {
		text, err := json.Marshal(fields[key])
		if err != nil {
			return "", err
		}
		rows = append(rows, fmt.Sprintf("%s: %s", key, text))
	}
	return strings.Join(rows, "\n"), nil
}
