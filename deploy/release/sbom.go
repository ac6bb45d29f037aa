package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

const standardLibrary = "std"

// writeBill writes the software bill of materials of all binaries.
func (r *release) writeBill(ctx context.Context) error {
	graph, err := output(ctx, r.root, r.env, "go", "mod", "graph")
	if err != nil {
		return err
	}
	text, err := makeBill(r.source, r.builds, graph)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.out, r.file("sbom.cdx.json")), text, 0o644)
}

// makeBill makes the bill from what Go has recorded in the binaries, and from the graph of
// requirements that `go mod graph` prints.
func makeBill(s source, builds map[platform]*debug.BuildInfo, graph string) ([]byte, error) {
	order := slices.SortedFunc(maps.Keys(builds), func(a, b platform) int {
		return strings.Compare(a.String(), b.String())
	})
	modules := make(map[string]*debug.Module)
	in := make(map[string][]string) // the platforms whose binaries have a module
	root, goVersion := "", ""
	for _, p := range order {
		info := builds[p]
		root, goVersion = info.Main.Path, info.GoVersion
		for _, module := range info.Deps {
			if first := modules[module.Path]; first != nil && first.Version != module.Version {
				return nil, fmt.Errorf("%s is in the binaries as %s and as %s", module.Path,
					first.Version, module.Version)
			}
			modules[module.Path] = module
			in[module.Path] = append(in[module.Path], p.String())
		}
	}
	if root == "" {
		return nil, fmt.Errorf("there is no binary to make a bill of")
	}
	project := component("application", root, s.describe)
	project.References = []billReference{{"vcs", "https://" + root}}
	project.Licenses = make([]billLicense, 1)
	project.Licenses[0].License.ID = "Apache-2.0"
	project.Properties = []billProperty{{"tidemark:commit", s.commit}}

	library := component("library", standardLibrary, strings.TrimPrefix(goVersion, "go"))
	components := []billComponent{library}
	refs := map[string]string{root: project.Ref}
	for _, path := range slices.Sorted(maps.Keys(modules)) {
		c := component("library", path, modules[path].Version)
		if sum := modules[path].Sum; sum != "" {
			c.Properties = append(c.Properties, billProperty{"tidemark:go.sum", sum})
		}
		if len(in[path]) < len(order) {
			c.Properties = append(c.Properties,
				billProperty{"tidemark:platforms", strings.Join(in[path], ",")})
		}
		components, refs[path] = append(components, c), c.Ref
	}
	b := bill{Format: "CycloneDX", SpecVersion: "1.6", Version: 1,
		Metadata:   billMetadata{s.when.Format(time.RFC3339), project},
		Components: components}
	b.Dependencies = dependencies(root, library.Ref, refs, modules, graph)
	unnumbered, err := json.Marshal(b)
	if err != nil {
		return nil, err
	}
	b.SerialNumber = serialNumber(unnumbered)
	text, err := json.MarshalIndent(b, "", "  ")
	return append(text, '\n'), err
}

func component(kind, path, version string) billComponent {
	// The specification of package URLs wants Go's names in lower case, and "+" encoded.
	url := "pkg:golang/" + strings.ToLower(path) + "@" + strings.ReplaceAll(version, "+", "%2B")
	return billComponent{Type: kind, Ref: url, Name: path, Version: version, PackageURL: url}
}

// dependencies returns, for each component, the modules in the binaries that it requires. The graph
// has a line "MODULE@VERSION MODULE@VERSION" for each requirement of each version that was
// considered; the requirements of the versions that were chosen count, and those of the project,
// which has no version.
func dependencies(root, library string, refs map[string]string, modules map[string]*debug.Module,
	graph string) []billDependency {
	on := make(map[string][]string)
	for line := range strings.Lines(graph) {
		from, to, _ := strings.Cut(strings.TrimSpace(line), " ")
		path, version, _ := strings.Cut(from, "@")
		required, _, _ := strings.Cut(to, "@")
		if modules[required] == nil || path != root &&
			(modules[path] == nil || modules[path].Version != version) {
			continue
		}
		on[path] = append(on[path], refs[required])
	}
	all := []billDependency{{Ref: library}}
	for _, path := range slices.Sorted(maps.Keys(refs)) {
		needed := append(on[path], library)
		slices.Sort(needed)
		all = append(all, billDependency{refs[path], slices.Compact(needed)})
	}
	return all
}

// serialNumber returns an identifier of the kind that is made from content (RFC 9562, version 8):
// bills with the same content have the same.
func serialNumber(content []byte) string {
	sum := sha256.Sum256(content)
	sum[6] = sum[6]&0x0f | 0x80
	sum[8] = sum[8]&0x3f | 0x80
	return fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", sum[:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
}
