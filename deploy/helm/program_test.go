package helm

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
)

// program is bin/tidemark, which `make helm-check` builds; TIDEMARK names another one.
func program(t *testing.T) string {
	t.Helper()
	path := os.Getenv("TIDEMARK")
	if path == "" {
		path = "../../bin/tidemark"
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v: `make helm-check` builds it", err)
	}
	return path
}

var flagInHelp = regexp.MustCompile(`(?m)^\s+(?:-\w, )?--([a-z-]+)(?: ([a-z]+))?(?:\s{2,}|$)`)

// flagsOf are the flags of a command by its help, each with the type of its value; "" is a switch.
func flagsOf(t *testing.T, command string) map[string]string {
	t.Helper()
	help, err := exec.Command(program(t), command, "--help").Output()
	if err != nil {
		t.Fatal(err)
	}
	flags := map[string]string{}
	for _, match := range flagInHelp.FindAllSubmatch(help, -1) {
		flags[string(match[1])] = string(match[2])
	}
	if len(flags) < 5 {
		t.Fatalf("the help of %s has the flags %v", command, flags)
	}
	return flags
}

// Every flag that the chart gives is one of the program's, and has a value if that wants one.
func TestFlagsAreOfTheProgram(t *testing.T) {
	flags := map[string]map[string]string{"start": flagsOf(t, "start"),
		"status": flagsOf(t, "status")}
	check := func(t *testing.T, command string, container *core.Container) {
		if container.Args[0] != command {
			t.Fatalf("the command is %s", container.Args[0])
		}
		for _, arg := range container.Args[1:] {
			name, _, valued := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
			kind, known := flags[command][name]
			if !known || !strings.HasPrefix(arg, "--") {
				t.Errorf("tidemark %s has no flag %s", command, arg)
			}
			if valued != (kind != "") {
				t.Errorf("%s: a value %v, and the flag wants %q", arg, valued, kind)
			}
		}
	}
	eachCase(t, func(t *testing.T, o *objects) {
		for _, set := range o.statefulSets {
			check(t, "start", server(set))
		}
		for _, pod := range o.pods {
			check(t, "status", &pod.Spec.Containers[0])
		}
	})
}

// expand is what Kubernetes makes of the variables in the arguments of a pod.
func expand(args []string, pod string) []string {
	values := strings.NewReplacer("$(POD_NAME)", pod, "$(ZONE)", "some-zone")
	var expanded []string
	for _, arg := range args {
		expanded = append(expanded, values.Replace(arg))
	}
	return expanded
}

// The program takes the command lines as they are: with a level of logs that there is not, which it
// looks at after all other flags and before it opens anything, it finds only that wrong.
func TestProgramTakesTheCommandLines(t *testing.T) {
	refusal := func(t *testing.T, args []string) string {
		var said bytes.Buffer
		cmd := exec.Command(program(t), args...)
		cmd.Stderr = &said
		var exited *exec.ExitError
		if err := cmd.Run(); !errors.As(err, &exited) {
			t.Fatalf("%v: %v", args, err)
		}
		return said.String()
	}
	eachCase(t, func(t *testing.T, o *objects) {
		for _, set := range o.statefulSets {
			args := append(expand(server(set).Args, set.Name+"-0"), "--log-level=loud")
			if said := refusal(t, args); !strings.Contains(said, "loud") {
				t.Errorf("tidemark %s\n%s", strings.Join(args, " "), said)
			}
			// Without a zone in its labels a pod does not start.
			if slot := strings.Join(server(set).Args, " "); strings.Contains(slot, "$(ZONE)") {
				args := expand(server(set).Args, set.Name+"-0")
				for i := range args {
					args[i] = strings.Replace(args[i], "some-zone", "", 1)
				}
				if said := refusal(t, args); !strings.Contains(said, "--locality") {
					t.Errorf("without a zone it says %s", said)
				}
			}
		}
	})
}
