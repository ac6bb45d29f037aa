package buildversion

import (
	"runtime/debug"
	"testing"
)

// The version is that of the module Tidemark in the program, and names a commit if there is no
// version.
func TestOf(t *testing.T) {
	const commit = "1a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d"
	vcs := func(modified string) []debug.BuildSetting {
		return []debug.BuildSetting{{Key: "-trimpath", Value: "true"}, {Key: "vcs", Value: "git"},
			{Key: "vcs.revision", Value: commit}, {Key: "vcs.modified", Value: modified}}
	}
	main := func(version string) debug.Module { return debug.Module{Path: module, Version: version} }
	program := debug.Module{Path: "example.com/shop", Version: "v7.0.0"}
	pseudo := "v0.1.1-0.20261201120000-1a2b3c4d5e6f"
	for name, test := range map[string]struct {
		info *debug.BuildInfo
		want Build
	}{
		"go install of a tag": {&debug.BuildInfo{Main: main("v0.1.0")}, Build{Version: "v0.1.0"}},
		"a clone at a tag": {&debug.BuildInfo{Main: main("v0.1.0"), Settings: vcs("false")},
			Build{"v0.1.0", "1a2b3c4d5e6f"}},
		"a clone behind a tag": {&debug.BuildInfo{Main: main(pseudo), Settings: vcs("false")},
			Build{pseudo, "1a2b3c4d5e6f"}},
		"a changed clone": {&debug.BuildInfo{Main: main(pseudo + "+dirty"), Settings: vcs("true")},
			Build{pseudo + "+dirty", "1a2b3c4d5e6f-dirty"}},
		"a commit without a version": {&debug.BuildInfo{Main: main("(devel)"), Settings: vcs("true")},
			Build{"devel-1a2b3c4d5e6f-dirty", "1a2b3c4d5e6f-dirty"}},
		"a short commit": {&debug.BuildInfo{Settings: []debug.BuildSetting{
			{Key: "vcs.revision", Value: "1a2b"}}}, Build{"devel-1a2b", "1a2b"}},
		"a test":  {&debug.BuildInfo{Main: main("(devel)")}, Build{Version: "(devel)"}},
		"nothing": {&debug.BuildInfo{}, Build{Version: "(devel)"}},
		"a program with an embedded server": {&debug.BuildInfo{Main: program, Settings: vcs("true"),
			Deps: []*debug.Module{{Path: "example.com/other", Version: "v1.0.0"},
				{Path: module, Version: "v0.1.0"}}}, Build{Version: "v0.1.0"}},
		"a program with a clone beside it": {&debug.BuildInfo{Main: program, Settings: vcs("false"),
			Deps: []*debug.Module{{Path: module, Version: "v0.1.0",
				Replace: &debug.Module{Path: "../tidemark"}}}}, Build{Version: "(devel)"}},
	} {
		if got := Of(test.info); got != test.want {
			t.Errorf("%s: %+v, not %+v", name, got, test.want)
		}
	}
	if Read().Version == "" {
		t.Error("the test itself has no version")
	}
}
