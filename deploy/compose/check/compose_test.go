package check

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
)

func load(t *testing.T) *types.Project {
	t.Helper()
	options, err := cli.NewProjectOptions([]string{"../compose.yaml"},
		cli.WithProfiles([]string{"*"}))
	if err != nil {
		t.Fatal(err)
	}
	project, err := options.LoadProject(context.Background()) // checks it by the schema of Compose
	if err != nil {
		t.Fatal(err)
	}
	return project
}

// Every server has the same list of core servers, advertises its own name, and says nothing of
// another one's.
func TestServers(t *testing.T) {
	project := load(t)
	names := []string{"db1", "db2", "db3"}
	for _, name := range names {
		service := project.Services[name]
		for _, want := range []string{"--core=db1:7400,db2:7400,db3:7400",
			"--advertise=" + name + ":7400",
			"--dir=/var/lib/tidemark"} {
			if !slices.Contains(service.Command, want) {
				t.Errorf("%s: no %s in %q", name, want, service.Command)
			}
		}
		for _, mount := range service.Volumes {
			if mount.Source != "data-"+name && mount.Source != "tls-"+name {
				t.Errorf("%s mounts %s", name, mount.Source)
			}
		}
		if len(service.Volumes) != 2 || service.HealthCheck == nil || !service.ReadOnly ||
			seconds(service.StopGracePeriod) < 30 {
			t.Errorf("%s: %+v", name, service)
		}
	}
	for name, service := range project.Services {
		for _, mount := range service.Volumes {
			if mount.Source == "authorities" && name != "certificates" {
				t.Errorf("%s has the keys of the authorities", name)
			}
		}
		for _, port := range service.Ports {
			if port.HostIP != "127.0.0.1" {
				t.Errorf("%s: %s is open to others than this machine", name, port.Published)
			}
		}
	}
}

// seconds are 0 if nothing is said.
func seconds(d *types.Duration) float64 {
	if d == nil {
		return 0
	}
	return float64(*d) / 1e9
}

// Files and folders that containers mount are there, and so are the volumes.
func TestMountsAreThere(t *testing.T) {
	project := load(t)
	bound := 0
	for name, service := range project.Services {
		if service.Build != nil {
			recipe := filepath.Join(service.Build.Context, service.Build.Dockerfile)
			text, err := os.ReadFile(recipe)
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if target := service.Build.Target; target != "" && !strings.Contains(string(text),
				" AS "+target+"\n") {
				t.Errorf("%s: no stage %s in %s", name, target, recipe)
			}
		}
		for _, mount := range service.Volumes {
			if mount.Type == types.VolumeTypeVolume {
				if _, ok := project.Volumes[mount.Source]; !ok {
					t.Errorf("%s: no volume %s", name, mount.Source)
				}
				continue
			}
			bound++
			if _, err := os.Stat(mount.Source); errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s mounts %s, which is not there", name, mount.Source)
			}
		}
	}
	if bound < 5 {
		t.Errorf("%d files and folders are mounted", bound)
	}
}
