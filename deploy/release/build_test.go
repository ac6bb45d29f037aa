package main

import (
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
)

// A binary is refused that Go has recorded other things in than the release says.
func TestCheckBuild(t *testing.T) {
	const commit = "1a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d"
	r := &release{source: source{commit: commit, describe: "v0.1.0"}}
	p := platform{"linux", "arm64"}
	record := func(change func(info *debug.BuildInfo, settings map[string]string)) *debug.BuildInfo {
		info := &debug.BuildInfo{GoVersion: runtime.Version(),
			Main: debug.Module{Version: "v0.1.0"}, Deps: []*debug.Module{{Path: "example.com/a"}}}
		settings := map[string]string{"GOOS": "linux", "GOARCH": "arm64", "CGO_ENABLED": "0",
			"vcs.revision": commit, "vcs.modified": "false", "-trimpath": "true"}
		change(info, settings)
		for name, value := range settings {
			info.Settings = append(info.Settings, debug.BuildSetting{Key: name, Value: value})
		}
		return info
	}
	for name, test := range map[string]struct {
		change func(info *debug.BuildInfo, settings map[string]string)
		want   string
	}{
		"right": {func(*debug.BuildInfo, map[string]string) {}, ""},
		"another machine": {func(_ *debug.BuildInfo, s map[string]string) { s["GOARCH"] = "amd64" },
			`GOARCH is "amd64", not "arm64"`},
		"cgo": {func(_ *debug.BuildInfo, s map[string]string) { s["CGO_ENABLED"] = "1" },
			"CGO_ENABLED"},
		"changed": {func(_ *debug.BuildInfo, s map[string]string) { s["vcs.modified"] = "true" },
			"vcs.modified"},
		"another commit": {func(_ *debug.BuildInfo, s map[string]string) { s["vcs.revision"] = "2b" },
			"vcs.revision"},
		"no commit": {func(_ *debug.BuildInfo, s map[string]string) { delete(s, "vcs.revision") },
			"no commit is recorded by Go"},
		"another tag": {func(i *debug.BuildInfo, _ map[string]string) { i.Main.Version = "v0.2.0" },
			"the go command calls it v0.2.0, not v0.1.0"},
		"another Go": {func(i *debug.BuildInfo, _ map[string]string) { i.GoVersion = "go1.99" },
			"it is built with go1.99"},
		"a replacement": {func(i *debug.BuildInfo, _ map[string]string) {
			i.Deps[0].Replace = &debug.Module{Path: "../a"}
		}, "go.mod replaces example.com/a"},
	} {
		err := r.checkBuild(p, record(test.change))
		if test.want == "" && err != nil || test.want != "" && (err == nil ||
			!strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: %v, not %q", name, err, test.want)
		}
	}
	snapshot := &release{source: source{commit: commit, describe: "1a2b3c4d5e6f-dirty"},
		snapshot: true}
	if err := snapshot.checkBuild(p, record(func(_ *debug.BuildInfo, s map[string]string) {
		s["vcs.modified"] = "true"
	})); err != nil {
		t.Errorf("a snapshot: %v", err)
	}
}

// Nothing in the user's environment changes what is built.
func TestEnvironmentIsCleaned(t *testing.T) {
	got := withoutBuildSettings([]string{"PATH=/bin", "HOME=/home/a", "GOFLAGS=-race", "GOAMD64=v3",
		"GOEXPERIMENT=x", "CGO_CFLAGS=-O3", "TIDEMARK_ENDPOINTS=a:1", "SOURCE_DATE_EPOCH=1",
		"NFPM_DEB_PASSPHRASE=x", "GOTOOLCHAIN=go1.26.8", "GOMAXPROCS=2", "GOOGLE_CLOUD=x", "EMPTY="})
	want := []string{"PATH=/bin", "HOME=/home/a", "GOTOOLCHAIN=go1.26.8", "GOMAXPROCS=2",
		"GOOGLE_CLOUD=x", "EMPTY="}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}
