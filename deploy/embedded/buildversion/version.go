package buildversion

import "runtime/debug"

const module = "github.com/tidemarkdb/tidemark"

// shortCommit is the number of digits of a commit that are shown, as in Go's pseudo-versions.
const shortCommit = 12

// Build describes the version of Tidemark in a program.
type Build struct {
	// Version is the module's version, such as v0.1.0 or a pseudo-version. Without a version it is
	// devel-COMMIT, or "(devel)" if the commit is also unknown.
	Version string
	// Commit has the first digits of the commit, and "-dirty" behind them if files were changed.
	// It is empty if the program was not built in a clone of Tidemark's repository.
	Commit string
}

// Read describes the running program.
func Read() Build {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return Of(&debug.BuildInfo{})
	}
	return Of(info)
}

// Of describes the program that info was read from. For a program of another module, which embeds
// servers or uses the SDK, it returns the version of the dependency on Tidemark. The program's own
// version and commit do not describe Tidemark.
func Of(info *debug.BuildInfo) Build {
	for _, dependency := range info.Deps {
		if dependency.Path != module {
			continue
		}
		if dependency.Replace != nil {
			dependency = dependency.Replace
		}
		return Build{Version: orDevel(dependency.Version, "")}
	}
	commit := commitOf(info.Settings)
	return Build{Version: orDevel(info.Main.Version, commit), Commit: commit}
}

func orDevel(version, commit string) string {
	switch {
	case version != "" && version != "(devel)":
		return version
	case commit != "":
		return "devel-" + commit
	}
	return "(devel)"
}

func commitOf(settings []debug.BuildSetting) string {
	commit, modified := "", false
	for _, s := range settings {
		switch s.Key {
		case "vcs.revision":
			commit = s.Value[:min(len(s.Value), shortCommit)]
		case "vcs.modified":
			modified = s.Value == "true"
		}
	}
	if commit != "" && modified {
		commit += "-dirty"
	}
	return commit
}
