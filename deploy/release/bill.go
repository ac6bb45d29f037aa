package main

// bill is a software bill of materials in the JSON format of CycloneDX 1.6: the program, the
// modules that are in its binaries, and Go's standard library.
type bill struct {
	Format       string           `json:"bomFormat"`
	SpecVersion  string           `json:"specVersion"`
	SerialNumber string           `json:"serialNumber"`
	Version      int              `json:"version"` // of the bill itself
	Metadata     billMetadata     `json:"metadata"`
	Components   []billComponent  `json:"components"`
	Dependencies []billDependency `json:"dependencies"`
}

type billMetadata struct {
	Timestamp string        `json:"timestamp"`
	Component billComponent `json:"component"`
}

type billComponent struct {
	Type       string          `json:"type"`
	Ref        string          `json:"bom-ref"`
	Name       string          `json:"name"`
	Version    string          `json:"version"`
	Licenses   []billLicense   `json:"licenses,omitempty"`
	PackageURL string          `json:"purl"`
	References []billReference `json:"externalReferences,omitempty"`
	Properties []billProperty  `json:"properties,omitempty"`
}

type billLicense struct {
	License struct {
		ID string `json:"id"`
	} `json:"license"`
}

type billReference struct {
	Type string `json:"type"`
	URL  string `json:"url"`
}

// billProperty is what CycloneDX has no field for. Its names begin with that of the project.
type billProperty struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// billDependency lists, by their references, the components that a component requires.
type billDependency struct {
	Ref       string   `json:"ref"`
	DependsOn []string `json:"dependsOn,omitempty"`
}
