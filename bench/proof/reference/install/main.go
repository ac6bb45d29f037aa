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
