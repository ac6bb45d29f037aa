package main

import (
	"bytes"
	"encoding/json"
	"regexp"
	"runtime/debug"
	"strings"
	"testing"
	"time"
)

func builds(modules map[platform][]debug.Module) map[platform]*debug.BuildInfo {
	all := make(map[platform]*debug.BuildInfo)
	for p, deps := range modules {
		info := &debug.BuildInfo{GoVersion: "go1.26.8",
			Main: debug.Module{Path: "github.com/tidemarkdb/tidemark", Version: "v0.1.0"}}
		for _, m := range deps {
			info.Deps = append(info.Deps, &m)
		}
		all[p] = info
	}
	return all
}

// The bill has each module of each binary once, and what requires it.
func TestBill(t *testing.T) {
	s := source{commit: "1a2b3c4d", describe: "v0.1.0",
		when: time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)}
	a := debug.Module{Path: "example.com/A", Version: "v1.2.0+incompatible", Sum: "h1:abc="}
	b := debug.Module{Path: "example.com/b", Version: "v0.3.0"}
	linux, darwin := platform{"linux", "amd64"}, platform{"darwin", "arm64"}
	in := builds(map[platform][]debug.Module{linux: {a, b}, darwin: {a}})
	const graph = `github.com/tidemarkdb/tidemark example.com/A@v1.1.0
github.com/tidemarkdb/tidemark example.com/test@v1.0.0
github.com/tidemarkdb/tidemark go@1.26.0
example.com/A@v1.2.0+incompatible example.com/b@v0.2.0
example.com/A@v1.1.0 example.com/A@v1.0.0
example.com/test@v1.0.0 example.com/b@v0.3.0
`
	text, err := makeBill(s, in, graph)
	if err != nil {
		t.Fatal(err)
	}
	for range 10 {
		if again, err := makeBill(s, in, graph); err != nil || !bytes.Equal(text, again) {
			t.Fatalf("the same binaries give another bill: %v", err)
		}
	}
	var got bill
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&got); err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`^urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-` +
		`[0-9a-f]{12}$`).MatchString(got.SerialNumber) {
		t.Errorf("serial number %s", got.SerialNumber)
	}
	if got.Metadata.Timestamp != "2026-12-01T12:00:00Z" ||
		got.Metadata.Component.PackageURL != "pkg:golang/github.com/tidemarkdb/tidemark@v0.1.0" {
		t.Errorf("%+v", got.Metadata)
	}
	var lines []string
	for _, c := range got.Components {
		line := c.Name + " " + c.PackageURL
		for _, p := range c.Properties {
			line += " " + p.Name + "=" + p.Value
		}
		lines = append(lines, line)
	}
	for _, d := range got.Dependencies {
		lines = append(lines, d.Ref+": "+strings.Join(d.DependsOn, " "))
	}
	want := `std pkg:golang/std@1.26.8
example.com/A pkg:golang/example.com/a@v1.2.0%2Bincompatible tidemark:go.sum=h1:abc=
example.com/b pkg:golang/example.com/b@v0.3.0 tidemark:platforms=linux_amd64
pkg:golang/std@1.26.8: 
pkg:golang/example.com/a@v1.2.0%2Bincompatible: pkg:golang/example.com/b@v0.3.0 pkg:golang/std@1.26.8
pkg:golang/example.com/b@v0.3.0: pkg:golang/std@1.26.8
pkg:golang/github.com/tidemarkdb/tidemark@v0.1.0: pkg:golang/example.com/a@v1.2.0%2Bincompatible pkg:golang/std@1.26.8`
	if strings.Join(lines, "\n") != want {
		t.Errorf("the bill has\n%s", strings.Join(lines, "\n"))
	}

	b.Version = "v0.4.0"
	other := builds(map[platform][]debug.Module{linux: {b},
		darwin: {{Path: b.Path, Version: "v0.3.0"}}})
	if _, err := makeBill(s, other, graph); err == nil {
		t.Error("binaries with two versions of a module have one bill")
	}
	if _, err := makeBill(s, nil, graph); err == nil {
		t.Error("there is a bill of nothing")
	}
}
