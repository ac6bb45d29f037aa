package progress

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/schollz/progressbar/v3"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/output"
)

// lineEvery is the interval of lines without a terminal. Shorter work prints none.
const lineEvery = 5 * time.Second

// Options say how to show the progress.
type Options struct {
	Out io.Writer
	// Terminal: Out can move its cursor.
	Terminal bool
	// Width is the terminal's width in columns; 0 if it is not known.
	Width int
	// Quiet shows nothing at all.
	Quiet bool
	// What names the work, for instance "load fruit".
	What string
	// Unit names the counted objects, in the plural: "records".
	Unit string
	// Total is their final number; 0 if it is not known.
	Total uint64
	// Now is the time of day; nil means time.Now.
	Now func() time.Time
}

// Progress is one piece of long work. It is not safe for concurrent use.
type Progress struct {
	options  Options
	bar      *progressbar.ProgressBar
	start    time.Time
	lastLine time.Time
	lastDone uint64
}

// Start begins to show progress.
func Start(options Options) *Progress {
	if options.Now == nil {
		options.Now = time.Now
	}
	p := &Progress{options: options, start: options.Now()}
	p.lastLine = p.start
	if options.Terminal && !options.Quiet {
		total := int64(-1)
		if options.Total > 0 {
			total = int64(options.Total)
		}
		p.bar = progressbar.NewOptions64(total,
			progressbar.OptionSetWriter(options.Out),
			progressbar.OptionSetDescription(options.What),
			progressbar.OptionSetItsString(options.Unit),
			progressbar.OptionShowIts(),
			progressbar.OptionShowCount(),
			progressbar.OptionSetPredictTime(options.Total > 0),
			progressbar.OptionSetWidth(options.barWidth()),
			progressbar.OptionThrottle(100*time.Millisecond),
			progressbar.OptionClearOnFinish(),
			// Without this option, a bar of unknown length starts a goroutine.
			progressbar.OptionSetSpinnerChangeInterval(0),
		)
	}
	return p
}

// The bar fills the line beside the words, within these bounds.
const (
	shortestBar = 5
	longestBar  = 30
	// wordsBeside is the approximate width of everything beside a bar except What.
	wordsBeside = 58
)

func (o *Options) barWidth() int {
	if o.Width == 0 {
		return longestBar
	}
	return min(max(o.Width-wordsBeside-len(o.What), shortestBar), longestBar)
}

// Set shows how much work has been done so far.
func (p *Progress) Set(done uint64) {
	switch {
	case p.options.Quiet:
	case p.bar != nil:
		_ = p.bar.Set64(int64(done)) // an error means that the terminal is gone
	default:
		now := p.options.Now()
		if interval := now.Sub(p.lastLine); interval >= lineEvery {
			rate := float64(done-p.lastDone) / interval.Seconds()
			p.lastLine, p.lastDone = now, done
			p.printLine(done, rate)
		}
	}
}

func (p *Progress) printLine(done uint64, rate float64) {
	of := ""
	if p.options.Total > 0 {
		of = fmt.Sprintf(" of %d (%.0f %%)", p.options.Total,
			100*float64(done)/float64(p.options.Total))
	}
	fmt.Fprintf(p.options.Out, "%s: %d%s %s, %.0f/s\n", p.options.What, done, of, p.options.Unit,
		rate)
}

// Stop removes the bar, so that the next text begins on an empty line.
func (p *Progress) Stop() {
	if p.bar != nil {
		_ = p.bar.Clear()
		_ = p.bar.Exit()
	}
}

// Elapsed returns the duration of the work so far.
func (p *Progress) Elapsed() time.Duration { return p.options.Now().Sub(p.start) }

// Line overwrites one line of a terminal repeatedly, for work whose progress is not a number.
// Without a terminal every Show prints a line.
type Line struct {
	Out      io.Writer
	Terminal bool
	// Width is the terminal's width in columns; 0 if it is not known.
	Width int
	shown int
}

// Show prints text in place of the text before.
func (l *Line) Show(text string) {
	if !l.Terminal {
		fmt.Fprintln(l.Out, text)
		return
	}
	if l.Width > 0 { // the last column is not used: some terminals go to the next line there
		text, _ = output.Fit(text, max(l.Width-1, 1))
	}
	columns := utf8.RuneCountInString(text)
	padding := max(l.shown-columns, 0)
	fmt.Fprintf(l.Out, "\r%s%s", text, strings.Repeat(" ", padding))
	l.shown = columns
}

// Stop takes the line away.
func (l *Line) Stop() {
	if l.Terminal && l.shown > 0 {
		fmt.Fprintf(l.Out, "\r%s\r", strings.Repeat(" ", l.shown))
		l.shown = 0
	}
}
