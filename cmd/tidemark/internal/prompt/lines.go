package prompt

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// maxLine is the longest line of a script in bytes: the longest key and value, with each byte
// written as \xNN, and a command.
const maxLine = 4*(keys.MaxKeySize+keys.MaxValueSize) + 4096

// Line is a line of input without its line end, or the error that ended the input.
type Line struct {
	Number int
	Text   string
	Err    error
}

// ReadLines yields the lines of in. If an error occurs, it is the last thing that it yields. It
// ends with ctx, even while it waits for a line. In that case a goroutine keeps waiting until in or
// the process ends.
func ReadLines(ctx context.Context, in io.Reader) iter.Seq[Line] {
	lines := make(chan Line)
	go func() {
		defer close(lines)
		scanner := bufio.NewScanner(in)
		scanner.Buffer(nil, maxLine)
		number := 1
		give := func(line Line) bool {
			select {
			case lines <- line:
				return true
			case <-ctx.Done():
				return false
			}
		}
		for ; scanner.Scan(); number++ {
			if !give(Line{Number: number, Text: scanner.Text()}) {
				return
			}
		}
		err := scanner.Err()
		if errors.Is(err, bufio.ErrTooLong) {
			err = exit.Usagef("the line is longer than %d bytes", maxLine)
		} else if err != nil {
			err = fmt.Errorf("standard input cannot be read: %w", err)
		}
		if err != nil {
			give(Line{Number: number, Err: err})
		}
	}()
	return func(yield func(Line) bool) {
		for ctx.Err() == nil {
			select {
			case line, more := <-lines:
				if !more || !yield(line) {
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}
}

// SplitWords splits a line at its blanks. Text between two quotes of the same kind is kept
// together, unchanged. A comment, which begins with #, has no words.
func SplitWords(line string) ([]string, error) {
	var words []string
	var word strings.Builder
	inside, quote := false, byte(0)
	finish := func() {
		if inside {
			words = append(words, word.String())
		}
		word.Reset()
		inside = false
	}
	for i := range len(line) {
		c := line[i]
		switch {
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
			word.WriteByte(c)
		case c == '\'' || c == '"':
			inside, quote = true, c
		case c == ' ' || c == '\t':
			finish()
		case c == '#' && len(words) == 0 && !inside:
			return nil, nil
		default:
			inside = true
			word.WriteByte(c)
		}
	}
	if quote != 0 {
		return nil, exit.Usagef("a quote (%c) is not closed; to use one in a word, put the word "+
			"in quotes of the other kind", quote)
	}
	finish()
	return words, nil
}
