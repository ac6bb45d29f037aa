package sim_test

import (
	"flag"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/planted"
)

var plantedSeeds = flag.Int("sim.planted", 60,
	"within how many seeds a planted bug must be found (TestPlanted)")

// TestPlanted checks that the simulated cluster notices the planted mistake of this build: make
// planted
func TestPlanted(t *testing.T) {
	if planted.Active == "" {
		t.Skip("this build carries no mistake: see make planted")
	}
	bug, err := planted.Find(planted.Active)
	if err != nil {
		t.Fatal(err)
	}
	*transacts = *transacts || bug.Transactional
	*backups = *backups || bug.Backups
	var mu sync.Mutex
	var virtual time.Duration
	next, found := *firstSeed, uint64(0)
	what := ""
	var workers sync.WaitGroup
	for range *parallel {
		workers.Go(func() {
			for {
				mu.Lock()
				seed, over := next, found != 0 || next >= *firstSeed+uint64(*plantedSeeds)
				next++
				mu.Unlock()
				if over {
					return
				}
				r, out, err := child(t.Context(), "-sim.seed", fmt.Sprint(seed), "-sim.seeds", "1",
					"-sim.minutes", fmt.Sprint(*minutes))
				mu.Lock()
				if r != nil {
					virtual += r.Virtual
				}
				if err != nil && found == 0 {
					found, what = seed, complaint(out, err)
				}
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	if found == 0 {
		t.Fatalf("PLANTED | %s | not found | in %d seeds | %.0f virtual minutes |", planted.Active,
			*plantedSeeds, virtual.Minutes())
	}
	// `make planted` prints the lines that contain PLANTED.
	fmt.Printf("PLANTED | %s | seed %d | after %.0f virtual minutes | %s |\n", planted.Active,
		found, max(virtual.Minutes(), *minutes), what)
}

var addresses = regexp.MustCompile(`0x[0-9a-f]+`)

// complaint returns the first violation of a run, in one line.
func complaint(out []byte, err error) string {
	for line := range strings.Lines(string(out)) {
		for _, word := range []string{"VIOLATION", "panic:", "fatal error:", "deadlock",
			"SIGQUIT"} {
			if i := strings.Index(line, word); i >= 0 {
				line = addresses.ReplaceAllString(strings.TrimSpace(line[i:]), "0x…")
				if len(line) > 160 {
					line = line[:160] + "…"
				}
				return strings.ReplaceAll(line, "|", "/")
			}
		}
	}
	return err.Error()
}
