package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/tidemarkdb/tidemark/bench/proof/planted"
)

func main() {
	bug := flag.String("bug", "", "the mistake")
	out := flag.String("out", "bin/_planted", "the folder for the copies")
	test := flag.Bool("test", false, "only say which test notices the mistake, if one is named")
	flag.Parse()
	if err := run(*bug, *out, *test); err != nil {
		fmt.Fprintln(os.Stderr, "overlay:", err)
		os.Exit(1)
	}
}

func run(bug, out string, test bool) error {
	if bug == "" {
		all, err := planted.All()
		for _, b := range all {
			fmt.Println(b.Name)
		}
		return err
	}
	b, err := planted.Find(bug)
	if err != nil {
		return err
	}
	if test {
		fmt.Println(b.Test)
		return nil
	}
	path, err := b.Overlay(".", out)
	if err != nil {
		return err
	}
	fmt.Println(path)
	return nil
}
