package planted

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// here is this package's folder.
const here = "bench/proof/planted"

// Overlay writes changed copies of the files that the mistake changes into dir. root is the root of
// the module. Overlay returns the path of the file for `go build -overlay`, which it writes too.
func (b Bug) Overlay(root, dir string) (string, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return "", err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	replace := make(map[string]string)
	put := func(name, text string) error {
		copied := filepath.Join(dir, fmt.Sprintf("%d_%s", len(replace), filepath.Base(name)))
		replace[filepath.Join(root, filepath.FromSlash(name))] = copied
		return os.WriteFile(copied, []byte(text), 0o644)
	}
	for _, f := range b.files {
		text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(f.name)))
		if err != nil {
			return "", err
		}
		broken, err := f.apply(string(text))
		if err != nil {
			return "", err
		}
		if err := put(f.name, broken); err != nil {
			return "", err
		}
	}
	active := fmt.Sprintf("package planted\n\nconst Active = %q\n", b.Name)
	if err := put(here+"/active.go", active); err != nil {
		return "", err
	}
	text, err := json.MarshalIndent(map[string]any{"Replace": replace}, "", "  ")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, text, 0o644)
}
