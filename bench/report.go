package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// Formats are the names that Result.Write accepts.
var Formats = []string{"table", "json", "tsv"}

// Write prints the result: "table" for people, "json" as one indented object, "tsv" as one line for
// each kind of operation below a line of names. Times in tsv are in microseconds.
func (r *Result) Write(w io.Writer, format string) error {
	switch format {
	case "table":
		return r.WriteTable(w, 0)
	case "json":
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		return encoder.Encode(r)
	case "tsv":
		return r.writeTSV(w)
	}
	return fmt.Errorf("unknown report format %q: use one of %s", format,
		strings.Join(Formats, ", "))
}

// rows returns the kinds, and the total if there is more than one kind.
func (r *Result) rows() []Operation {
	if len(r.Operations) == 1 {
		return r.Operations
	}
	return append(r.Operations[:len(r.Operations):len(r.Operations)], r.Total)
}

// WriteTable prints the result for people. If the table of the operations has more columns than the
// terminal, some columns are left out and listed in a note. Lines of text may be longer than the
// terminal. columns = 0 means no limit.
func (r *Result) WriteTable(w io.Writer, columns int) error {
	if x := r.Transactions; x != nil {
		fmt.Fprintf(w, "workload %s: %s, %s, %.1f s measured after %.1f s warm-up, seed %d\n",
			r.Workload, counted(uint64(r.Clients), "client"), x.About, r.Seconds, r.WarmUp, r.Seed)
	} else {
		fmt.Fprintf(w, "workload %s: %s, %s of %s, %s keys, %.1f s measured after %.1f s "+
			"warm-up, seed %d\n",
			r.Workload, counted(uint64(r.Clients), "client"), counted(r.Records, "record"),
			counted(uint64(r.ValueSize), "byte"), r.Keys, r.Seconds, r.WarmUp, r.Seed)
	}
	if r.Interrupted {
		fmt.Fprintln(w, "the run was interrupted: these are the numbers until then")
	}
	names, rows := r.cells()
	var without []string
	shown := tableOf(names, rows)
	for _, name := range leftOut {
		if i := slices.Index(names, name); i > 0 && columns > 0 && widest(shown) > columns {
			without = append(without, name)
			names = slices.Delete(names, i, i+1)
			for r := range rows {
				rows[r] = slices.Delete(rows[r], i, i+1)
			}
			shown = tableOf(names, rows)
		}
	}
	if len(without) > 0 {
		shown += "\n(not shown: " + strings.Join(without, ", ") + ")"
	}
	if _, err := fmt.Fprintln(w, shown); err != nil {
		return err
	}
	if r.Transactions != nil {
		if err := r.Transactions.write(w); err != nil {
			return err
		}
	}
	for _, f := range r.Total.Failures {
		if _, err := fmt.Fprintf(w, "%s × %s, for example: %s\n",
			groupDigits(strconv.FormatUint(f.Count, 10)), f.Class, printable(f.Example)); err != nil {
			return err
		}
	}
	return nil
}

// leftOut are the columns that are left out first if the terminal is too narrow.
var leftOut = []string{"mean", "p95", "rows/s", "max", "errors", "p50"}

// cells returns the table of the operations: the names of its columns, and its rows.
func (r *Result) cells() (names []string, rows [][]string) {
	names = []string{"operation", "count", "ops/s", "mean", "p50", "p95", "p99", "max", "errors"}
	scans := r.Total.Rows > 0
	if scans {
		names = append(names, "rows/s")
	}
	for _, op := range r.rows() {
		row := []string{
			op.Kind, groupDigits(strconv.FormatUint(op.Count, 10)),
			groupDigits(fmt.Sprintf("%.0f", op.Throughput)),
			micros(int64(op.Mean)), micros(op.P50), micros(op.P95), micros(op.P99), micros(op.Max),
			groupDigits(strconv.FormatUint(op.Errors, 10)),
		}
		if scans {
			row = append(row, groupDigits(fmt.Sprintf("%.0f", op.RowThroughput)))
		}
		rows = append(rows, row)
	}
	return names, rows
}

// tableOf formats a table.
func tableOf(names []string, rows [][]string) string {
	t := table.NewWriter()
	style := table.StyleLight
	style.Options = table.OptionsNoBordersAndSeparators
	style.Format.Header = text.FormatDefault
	style.Format.Footer = text.FormatDefault
	t.SetStyle(style)
	var columns []table.ColumnConfig
	for number := 2; number <= len(names); number++ {
		columns = append(columns, table.ColumnConfig{Number: number, Align: text.AlignRight,
			AlignHeader: text.AlignRight})
	}
	t.SetColumnConfigs(columns)
	line := func(cells []string) (row table.Row) {
		for _, cell := range cells {
			row = append(row, cell)
		}
		return row
	}
	t.AppendHeader(line(names))
	for _, row := range rows {
		t.AppendRow(line(row))
	}
	return trimLines(t.Render())
}

// widest is the length of the longest line.
func widest(lines string) (most int) {
	for line := range strings.Lines(lines) {
		most = max(most, text.StringWidth(strings.TrimRight(line, "\n")))
	}
	return most
}

// printable makes the text of an error safe for a terminal. The text may come from a server.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, text)
}

func (r *Result) writeTSV(w io.Writer) error {
	if _, err := fmt.Fprintln(w,
		"workload\toperation\tclients\tcount\tthroughput\tmean_us\t"+
			"p50_us\tp95_us\tp99_us\tp999_us\tmax_us\terrors\trows"); err != nil {
		return err
	}
	for _, op := range r.rows() {
		if _, err := fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%.1f\t%.1f\t%d\t%d\t%d\t%d\t%d\t%d\t%d\n",
			r.Workload, op.Kind, r.Clients, op.Count,
			op.Throughput, op.Mean, op.P50, op.P95, op.P99, op.P999, op.Max, op.Errors,
			op.Rows); err != nil {
			return err
		}
	}
	return nil
}

// micros formats a latency with about three digits.
func micros(us int64) string {
	d := time.Duration(us) * time.Microsecond
	switch {
	case d < time.Millisecond:
		return fmt.Sprintf("%d µs", us)
	case d < 100*time.Millisecond:
		return fmt.Sprintf("%.2f ms", float64(us)/1e3)
	case d < time.Second:
		return fmt.Sprintf("%.0f ms", float64(us)/1e3)
	default:
		return fmt.Sprintf("%.2f s", d.Seconds())
	}
}

// groupDigits inserts commas into a whole number.
func groupDigits(digits string) string {
	var b strings.Builder
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(d)
	}
	return b.String()
}

// counted formats a number with a noun.
func counted(n uint64, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return groupDigits(strconv.FormatUint(n, 10)) + " " + noun
}

func trimLines(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.Join(lines, "\n")
}

// AppendReport adds a report to a page of measurements (docs/results), below a new heading. It does
// not change the existing content of the page. If the page does not exist, it is created.
func AppendReport(path, heading, report string) (err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("keep the report: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := fmt.Fprintf(f, "\n## %s\n\n%s\n", heading, strings.TrimSpace(report)); err != nil {
		return fmt.Errorf("keep the report: %w", err)
	}
	return nil
}
