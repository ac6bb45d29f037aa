package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/tidemarkdb/tidemark/deploy/monitoring"
)

func main() {
	out := flag.String("out", "deploy/monitoring", "the folder to write to")
	flag.Parse()
	for name, content := range monitoring.Files() {
		if err := write(filepath.Join(*out, filepath.FromSlash(name)), content); err != nil {
			fmt.Fprintln(os.Stderr, "generate:", err)
			os.Exit(1)
		}
	}
}

func write(path string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, content, 0o644)
}
