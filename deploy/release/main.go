package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"time"
)

const usage = `usage: release build -version v0.1.0 | -snapshot
       release deb [-arch ARCH] [-package-version VERSION]
       release changelog -version v0.1.0`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	commands := map[string]func(context.Context, source, []string) error{
		"build": runBuild, "deb": runDeb, "changelog": runChangelog}
	if len(args) == 0 || commands[args[0]] == nil {
		return errors.New(usage)
	}
	s, err := readSource(ctx)
	if err != nil {
		return err
	}
	return commands[args[0]](ctx, s, args[1:])
}

func runBuild(ctx context.Context, s source, args []string) error {
	flags := flag.NewFlagSet("build", flag.ExitOnError)
	tag := flags.String("version", "", "the tag at HEAD to release")
	snapshot := flags.Bool("snapshot", false, "build HEAD as it is, with any changes, under the "+
		"name that git describe gives it")
	_ = flags.Parse(args)
	if !*snapshot {
		v, err := parseVersion(*tag)
		if err != nil {
			return err
		}
		if err := s.releasable(ctx, v); err != nil {
			return err
		}
		s.describe = v.String() // git might name another tag at the commit
	}
	return withRelease(ctx, s, *snapshot, func(r *release) error {
		r.platforms, r.out = released, filepath.Join(s.root, "bin", "release", s.describe)
		if err := r.writeAll(ctx); err != nil {
			return err
		}
		fmt.Println(r.out)
		return nil
	})
}

func runDeb(ctx context.Context, s source, args []string) error {
	flags := flag.NewFlagSet("deb", flag.ExitOnError)
	arch := flags.String("arch", runtime.GOARCH, "the architecture of the package")
	packageVersion := flags.String("package-version", "", "the package's version; without it, the "+
		"version is that of the commit")
	_ = flags.Parse(args)
	return withRelease(ctx, s, true, func(r *release) error {
		if *packageVersion != "" {
			r.packageVersion = *packageVersion
		}
		p := platform{"linux", *arch}
		r.platforms, r.out = []platform{p}, filepath.Join(s.root, "bin")
		if err := r.compile(ctx, p, r.binary(p)); err != nil {
			return err
		}
		if err := r.makeKit(ctx); err != nil {
			return err
		}
		if err := os.MkdirAll(r.out, 0o755); err != nil {
			return err
		}
		return r.writePackage(ctx, p, "deb", r.out)
	})
}

func runChangelog(_ context.Context, s source, args []string) error {
	flags := flag.NewFlagSet("changelog", flag.ExitOnError)
	tag := flags.String("version", "", "the release whose section begins")
	_ = flags.Parse(args)
	v, err := parseVersion(*tag)
	if err != nil {
		return err
	}
	path := filepath.Join(s.root, changelogFile)
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	begun, err := beginRelease(string(text), v, time.Now())
	if err != nil {
		return err
	}
	return os.WriteFile(path, []byte(begun), 0o644)
}
