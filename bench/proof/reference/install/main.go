// Command install builds etcd's programs for the tests that need them, and prints where they are.
// -cache is the directory below which they are kept; without it, it is one below the user's cache
// directory, where tests look for them.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/tidemarkdb/tidemark/bench/proof/reference"
)

func main() {
	cache := flag.String("cache", "", "directory below which the programs are kept")
	flag.Parse()
	programs, err := reference.Install(context.Background(), *cache)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(filepath.Dir(programs.Etcd))
}
