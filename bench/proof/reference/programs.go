package reference

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
)

const (
	mainModule = "github.com/tidemarkdb/tidemark"
	// moduleFolder is the folder, in the main module, of the module that pins the programs.
	moduleFolder = "bench/proof/reference/module"
)

// programs maps the names of the programs to their packages.
var programs = map[string]string{
	"etcd":    "go.etcd.io/etcd/server/v3",
	"etcdctl": "go.etcd.io/etcd/etcdctl/v3",
	"etcdutl": "go.etcd.io/etcd/etcdutl/v3",
}

// Programs has the paths of etcd's programs.
type Programs struct {
	Etcd, Etcdctl, Etcdutl string
}

// Install builds the programs if they are missing, and returns their paths. The programs are in a
// directory below cache whose name depends on what was built. An empty cache means the directory
// tidemark/reference below os.UserCacheDir. Processes that install at the same time wait for each
// other. Install must be called in a directory of this module, as tests are.
func Install(ctx context.Context, cache string) (Programs, error) {
	if cache == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return Programs{}, fmt.Errorf("where to keep etcd's programs: %w", err)
		}
		cache = filepath.Join(user, "tidemark", "reference")
	}
	module, err := moduleDir(ctx)
	if err != nil {
		return Programs{}, err
	}
	name, err := buildName(module)
	if err != nil {
		return Programs{}, err
	}
	dir := filepath.Join(cache, name)
	installed := Programs{Etcd: filepath.Join(dir, "etcd"), Etcdctl: filepath.Join(dir, "etcdctl"),
		Etcdutl: filepath.Join(dir, "etcdutl")}
	if _, err := os.Stat(dir); err == nil {
		return installed, nil
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return Programs{}, fmt.Errorf("directory for etcd's programs: %w", err)
	}
	unlock, err := lockFile(filepath.Join(cache, "lock"))
	if err != nil {
		return Programs{}, err
	}
	defer unlock()
	if _, err := os.Stat(dir); err == nil {
		return installed, nil // another process has built the programs meanwhile
	}
	return installed, build(ctx, module, cache, dir)
}

// build makes the directory dir below cache, complete or not at all.
func build(ctx context.Context, module, cache, dir string) error {
	unfinished, err := os.MkdirTemp(cache, "unfinished-")
	if err != nil {
		return fmt.Errorf("directory for etcd's programs: %w", err)
	}
	defer os.RemoveAll(unfinished)
	for name, of := range programs {
		cmd := exec.CommandContext(ctx, "go", "build", "-C", module, "-trimpath", "-ldflags", "-s -w",
			"-o", filepath.Join(unfinished, name), of)
		cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s from %s: %w\n%s\nThe tests that need etcd have it built from "+
				"the Go module proxy; `make reference` does it in advance", name, of, err, out)
		}
	}
	if err := os.Rename(unfinished, dir); err != nil {
		return fmt.Errorf("keep etcd's programs: %w", err)
	}
	return nil
}

// moduleDir returns the directory of the module that pins the programs.
func moduleDir(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", mainModule).Output()
	if err != nil {
		return "", fmt.Errorf("find the module %s: %w", mainModule, err)
	}
	return filepath.Join(strings.TrimSpace(string(out)), filepath.FromSlash(moduleFolder)), nil
}

// buildName returns a name that differs for different contents of the module.
func buildName(module string) (string, error) {
	sum := sha256.New()
	for _, name := range []string{"go.mod", "go.sum"} {
		content, err := os.ReadFile(filepath.Join(module, name))
		if err != nil {
			return "", fmt.Errorf("which etcd to build: %w", err)
		}
		sum.Write(content)
	}
	version, err := pinned(filepath.Join(module, "go.mod"), programs["etcd"])
	if err != nil {
		return "", err
	}
	return version + "-" + runtime.Version() + "-" + hex.EncodeToString(sum.Sum(nil)[:6]), nil
}

// pinned returns the version of a required module in a go.mod file.
func pinned(file, module string) (string, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("which version of %s: %w", module, err)
	}
	for line := range strings.Lines(string(content)) {
		fields := strings.Fields(strings.TrimPrefix(line, "require "))
		if len(fields) >= 2 && fields[0] == module {
			return fields[1], nil
		}
	}
	return "", fmt.Errorf("%s does not require %s", file, module)
}

// lockFile waits until no other process has the lock, and takes it. unlock releases it.
func lockFile(path string) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock for etcd's programs: %w", err)
	}
	for {
		err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX)
		if err != syscall.EINTR {
			break
		}
	}
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return func() { file.Close() }, nil
}
