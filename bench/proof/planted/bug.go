package planted

import (
	"embed"
	"fmt"
	"path"
	"slices"
	"strings"
)

//go:embed patches/*.patch
var patches embed.FS

// noticedBy is the line of a patch whose mistake only seeds with transactions notice.
// noticedByBackups is the line of a patch whose mistake only seeds with backups notice.
const noticedBy, noticedByBackups = "Noticed by: transactions", "Noticed by: backups"

// testedBy begins the line with the package and the name of the test that notices the mistake, if
// the simulated cluster would notice it only once in hours.
const testedBy = "Noticed by the test: "

// Bug is a planted mistake.
type Bug struct {
	Name string
	// Mistake describes the mistake in a sentence.
	Mistake string
	// Transactional: only seeds with transactions notice the mistake. Backups: only seeds with
	// backups notice it.
	Transactional, Backups bool
	// Test is the package and the name of the test that notices the mistake; "" if the simulated
	// cluster notices it.
	Test string

	files []filePatch
}

// All lists the mistakes by name.
func All() ([]Bug, error) {
	entries, err := patches.ReadDir("patches")
	if err != nil {
		return nil, err
	}
	var all []Bug
	for _, e := range entries {
		text, err := patches.ReadFile(path.Join("patches", e.Name()))
		if err != nil {
			return nil, err
		}
		b, err := parse(strings.TrimSuffix(e.Name(), ".patch"), string(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", e.Name(), err)
		}
		all = append(all, b)
	}
	return all, nil
}

// Find returns the mistake of that name.
func Find(name string) (Bug, error) {
	all, err := All()
	if err != nil {
		return Bug{}, err
	}
	i := slices.IndexFunc(all, func(b Bug) bool { return b.Name == name })
	if i < 0 {
		return Bug{}, fmt.Errorf("no mistake is called %q", name)
	}
	return all[i], nil
}

// parse reads the file of a mistake: sentences, and a unified diff.
func parse(name, text string) (Bug, error) {
	b := Bug{Name: name}
	head, diff, found := strings.Cut(text, "--- a/")
	for line := range strings.Lines(head) {
		switch line = strings.TrimSpace(line); {
		case line == noticedBy:
			b.Transactional = true
		case line == noticedByBackups:
			b.Backups = true
		case strings.HasPrefix(line, testedBy):
			b.Test = strings.TrimPrefix(line, testedBy)
		case line != "":
			b.Mistake = strings.TrimSpace(b.Mistake + " " + line)
		}
	}
	if !found || b.Mistake == "" {
		return b, fmt.Errorf("it has no diff, or no sentence that says what is wrong")
	}
	var err error
	b.files, err = parseDiff("--- a/" + diff)
	return b, err
}
