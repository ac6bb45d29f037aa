package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

const recipeFile = "deploy/container/Dockerfile"

// writeRecipe writes the recipe of the container image with the arguments of the release, so that
// nobody has to give them:
//
//	docker build -f tidemark_0.1.0_Dockerfile https://github.com/tidemarkdb/tidemark.git#v0.1.0
func (r *release) writeRecipe() error {
	recipe, err := os.ReadFile(filepath.Join(r.root, recipeFile))
	if err != nil {
		return err
	}
	filled, err := fillRecipe(string(recipe), map[string]string{
		"GO_VERSION": strings.TrimPrefix(runtime.Version(), "go"),
		"VERSION":    r.describe,
		"REVISION":   r.commit,
		"CREATED":    r.when.Format(time.RFC3339),
	})
	if err != nil {
		return fmt.Errorf("%s: %w", recipeFile, err)
	}
	return os.WriteFile(filepath.Join(r.out, r.file("Dockerfile")), []byte(filled), 0o644)
}

// fillRecipe sets the defaults of arguments, wherever the recipe declares them.
func fillRecipe(recipe string, arguments map[string]string) (string, error) {
	var filled strings.Builder
	set := make(map[string]bool)
	for line := range strings.Lines(recipe) {
		declaration, _ := strings.CutPrefix(strings.TrimRight(line, "\n"), "ARG ")
		name, _, isDefault := strings.Cut(declaration, "=")
		if value, ok := arguments[name]; ok && isDefault && strings.HasPrefix(line, "ARG ") {
			line, set[name] = "ARG "+name+"="+value+"\n", true
		}
		filled.WriteString(line)
	}
	for name := range arguments {
		if !set[name] {
			return "", fmt.Errorf("there is no line ARG %s=", name)
		}
	}
	return filled.String(), nil
}
