package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/tidemarkdb/tidemark/bench"
)

// driver loads a subject and runs the cases against it.
type driver interface {
	load(ctx context.Context, z size) error
	// run calls look when the measured window begins and when it has ended. If profile is not empty
	// and the driver supports it, the processor profile of the client is written to that file.
	run(ctx context.Context, c bench.Config, look func(window), profile string) (*bench.Result, error)
}

// window is the beginning or the end of the measured window.
type window struct {
	// End is 0 for the beginning, 1 for the end.
	End int
	// Client is the id of the process that runs the clients.
	Client int
}

// inProcess runs the clients in this process, with the compiled-in client library.
type inProcess struct {
	target   bench.Target
	classify func(error) string
}

func (d inProcess) load(ctx context.Context, z size) error {
	return bench.Load(ctx, d.target, bench.Config{
		Workload: bench.Put(), Records: z.Records, ValueSize: z.ValueSize,
	})
}

func (d inProcess) run(
	ctx context.Context, c bench.Config, look func(window), _ string,
) (*bench.Result, error) {
	c.Classify = d.classify
	// With an interval longer than any phase, progress is reported at the end of each phase.
	c.ProgressInterval = 24 * time.Hour
	c.Progress = func(p bench.Progress) {
		if p.Elapsed < p.Total {
			return
		}
		look(window{End: endOf(p.Phase), Client: os.Getpid()})
	}
	return bench.Run(ctx, d.target, c)
}

func endOf(phase string) int {
	if phase == "measure" {
		return 1
	}
	return 0
}

// ownProgram runs the clients in a separate process: the `tidemark bench` of a Tidemark binary. So
// client and servers have the same version, as for the users of that binary, and no version's
// client needs to understand another version's servers.
type ownProgram struct {
	binary    string
	keyspace  string
	arguments []string
	// profiles is set if the binary knows the flag --cpu-profile.
	profiles bool
}

func (d ownProgram) command(ctx context.Context, workload string, more ...string) *exec.Cmd {
	arguments := append([]string{"bench", workload, "--keyspace", d.keyspace}, d.arguments...)
	return exec.CommandContext(ctx, d.binary, append(arguments, more...)...)
}

// load loads the records by a run of the program, which loads them before it reads.
func (d ownProgram) load(ctx context.Context, z size) error {
	command := d.command(ctx, "get", "--records", fmt.Sprint(z.Records),
		"--value-size", fmt.Sprint(z.ValueSize),
		"--clients", "1", "--warm-up", "0s", "--duration", "1ms")
	output, err := command.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w; its output ends:\n%s", command, err, lastOf(output))
	}
	return nil
}

func (d ownProgram) run(
	ctx context.Context, c bench.Config, look func(window), profile string,
) (_ *bench.Result, err error) {
	name, more := c.Workload.Name, []string{
		"--output", "json",
		"--clients", fmt.Sprint(c.Clients), "--records", fmt.Sprint(c.Records),
		"--value-size", fmt.Sprint(c.ValueSize), "--seed", fmt.Sprint(c.Seed),
		"--warm-up", max(c.WarmUp, 0).String(), "--duration", c.Duration.String(),
	}
	if name != "put" {
		more = append(more, "--skip-load")
	}
	if name == "scan" {
		more = append(more, "--rows", fmt.Sprint(c.Workload.ScanRows))
	}
	if profile != "" && d.profiles {
		more = append(more, "--cpu-profile", profile)
	}
	command := d.command(ctx, name, more...)
	var answer bytes.Buffer
	command.Stdout = &answer
	said, err := command.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", command, err)
	}
	words := watchPhases(said, func(phase string) {
		look(window{End: endOf(phase), Client: command.Process.Pid})
	})
	if err := command.Wait(); err != nil {
		err = fmt.Errorf("%s: %w; its output ends:\n%s", command, err, lastOf(words))
		return nil, errors.Join(err, context.Cause(ctx))
	}
	result := new(bench.Result)
	if err := json.Unmarshal(answer.Bytes(), result); err != nil {
		return nil, fmt.Errorf("result of %s: %w", command, err)
	}
	return result, nil
}

// watchPhases reads the progress that `tidemark bench` prints, and calls ended at the end of each
// phase. It returns the whole text at the end of the input.
func watchPhases(r io.Reader, ended func(phase string)) []byte {
	var all bytes.Buffer
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		all.WriteString(lines.Text() + "\n")
		if phase, ok := endedPhase(lines.Text()); ok {
			ended(phase)
		}
	}
	_, _ = io.Copy(&all, r) // after a line that is too long
	return all.Bytes()
}

// endedPhase recognizes the last line of a phase: "measure  3 of 3 s  1234 ops/s ...".
func endedPhase(line string) (phase string, ok bool) {
	words := strings.Fields(line)
	if len(words) < 4 || words[2] != "of" || words[0] != "warm-up" && words[0] != "measure" {
		return "", false
	}
	elapsed, err := strconv.ParseFloat(words[1], 64)
	total, totalErr := strconv.ParseFloat(words[3], 64)
	if err != nil || totalErr != nil || elapsed < total {
		return "", false
	}
	return words[0], true
}

func lastOf(output []byte) []byte { return output[max(0, len(output)-2000):] }
