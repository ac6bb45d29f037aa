package main

import (
	"context"
	"path/filepath"
	"slices"
	"strconv"
)

const (
	packageTools  = ".ci/package.mod"
	packageConfig = "deploy/package/nfpm.yaml"
)

// writePackage makes the deb or rpm of a platform in a folder. deploy/package/nfpm.yaml lists what
// is in a package.
func (r *release) writePackage(ctx context.Context, p platform, format, dir string) error {
	env := append(slices.Clone(r.env),
		"ARCH="+p.arch,
		"PACKAGE_VERSION="+r.packageVersion,
		"PROGRAM="+r.binary(p),
		"KIT="+filepath.Join(r.work, "kit"),
		// All times in a package are those of the commit.
		"SOURCE_DATE_EPOCH="+strconv.FormatInt(r.when.Unix(), 10))
	said, err := output(ctx, r.root, env, "go", "tool", "-modfile="+packageTools, "nfpm", "package",
		"-f", packageConfig, "-p", format, "-t", dir+string(filepath.Separator))
	r.say(said)
	return err
}

// writePackages makes the packages of all platforms that have some.
func (r *release) writePackages(ctx context.Context) error {
	for _, p := range r.platforms {
		if p.os != "linux" {
			continue
		}
		for _, format := range []string{"deb", "rpm"} {
			if err := r.writePackage(ctx, p, format, r.out); err != nil {
				return err
			}
		}
	}
	return nil
}
