package fleet

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// pageLimit bounds the size of a page that a server sends.
const pageLimit = 16 << 20

func readAll(r io.Reader) (string, error) {
	page, err := io.ReadAll(io.LimitReader(r, pageLimit))
	return string(page), err
}

func FirstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return line
}

// Sample is one line of a /metrics page.
type Sample struct {
	// Name is the metric's name without its labels. Labels is the text between the braces.
	Name, Labels string
	Value        float64
}

// Metrics reads the server's page /metrics.
func (s *Server) Metrics(ctx context.Context) ([]Sample, error) {
	page, err := s.Page(ctx, "/metrics")
	if err != nil {
		return nil, err
	}
	samples, err := parseMetrics(page)
	if err != nil {
		return nil, fmt.Errorf("/metrics of %s: %w", s.Name, err)
	}
	return samples, nil
}

// parseMetrics parses the parts of the Prometheus text format that servers write: comments, and
// lines of name, labels and value.
func parseMetrics(page string) ([]Sample, error) {
	var samples []Sample
	lines := bufio.NewScanner(strings.NewReader(page))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		var sample Sample
		rest := ""
		if open := strings.IndexByte(line, '{'); open >= 0 {
			end := strings.LastIndexByte(line, '}')
			if end < open {
				return nil, fmt.Errorf("labels without an end: %q", line)
			}
			sample.Name, sample.Labels, rest = line[:open], line[open+1:end], line[end+1:]
		} else {
			var ok bool
			if sample.Name, rest, ok = strings.Cut(line, " "); !ok {
				return nil, fmt.Errorf("no value: %q", line)
			}
		}
		// A timestamp may follow the value.
		fields := strings.Fields(rest)
		if len(fields) == 0 {
			return nil, fmt.Errorf("no value: %q", line)
		}
		value, err := strconv.ParseFloat(fields[0], 64)
		if err != nil {
			return nil, fmt.Errorf("value of %q: %w", line, err)
		}
		sample.Value = value
		samples = append(samples, sample)
	}
	return samples, lines.Err()
}

// Sum adds up all samples whose name contains every one of the words.
func Sum(samples []Sample, words ...string) float64 {
	sum := 0.0
next:
	for _, sample := range samples {
		for _, word := range words {
			if !strings.Contains(sample.Name, word) {
				continue next
			}
		}
		sum += sample.Value
	}
	return sum
}
