// Package output prints what commands find, in the form that --output asks for:
//
//	table  for people: aligned columns that fit the screen, bytes that do not print are escaped,
//	       sizes with a unit
//	json   for programs: one object a line, so that any number of rows can be streamed; numbers
//	       are numbers, durations seconds, and whatever does not print is escaped
//	tsv    for programs and spreadsheets: tab-separated, escaped so that it can be read back exactly
//	raw    keys and values as they are; at a terminal, what it would act on is escaped, and in words
//	       everywhere
//
// A Table holds a short list (nodes, keyspaces, partitions) and aligns all of it. Rows streams
// pairs of key and value in constant memory. In json and tsv the rows of Rows are what `tidemark
// load` takes; the tsv of a Table begins with a line of names.
package output
