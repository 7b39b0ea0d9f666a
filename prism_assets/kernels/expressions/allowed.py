"""The functions expressions may call. All functions of DuckDB were reviewed once, and only safe ones are listed.

A safe function returns the same result for the same arguments, always and on every machine: DuckDB calls it CONSISTENT,
or it is a macro over such functions. Excluded are clocks, random numbers, settings, files and catalogs; functions
depending on a time zone or language (`timezone`, `to_timestamp`, `collate_de`); list aggregates by name
(`list_aggregate`); and functions that make values of any size from a number (`range`, `printf`), except with a constant
number: see BOUNDED. `prism_assets_tests/kernels/golden` holds results of each function, and its test fails if another
version of DuckDB changes one.
"""

from __future__ import annotations

from collections.abc import Mapping

_OPERATORS = "!~~ !~~* !__postfix % & && * ** + - ->> / // < << <= <@ = > >= >> @ @> ^ ^@ xor | || ~ ~~ ~~* ~~~"
_NUMBERS = """
abs acos acosh add asin asinh atan atan2 atanh bin bit_count cbrt ceil ceiling cos cosh cot degrees divide even exp
factorial floor gamma gcd greatest greatest_common_divisor isfinite isinf isnan lcm least least_common_multiple lgamma
ln log log10 log2 mod multiply nextafter pi pow power radians round round_even roundbankers sign signbit sin sinh sqrt
subtract tan tanh to_base to_binary to_hex trunc
"""
_TEXTS = """
array_to_string ascii base64 bit_length char_length character_length chr concat concat_ws contains decode encode
ends_with format_bytes from_base64 from_binary from_hex hamming hash hex ilike_escape instr jaccard jaro_similarity
jaro_winkler_similarity lcase left left_grapheme length length_grapheme like_escape lower ltrim md5 md5_number
md5_number_lower md5_number_upper mismatches nfc_normalize not_ilike_escape not_like_escape octet_length ord overlay
parse_dirname parse_dirpath parse_filename parse_path position prefix regexp_escape regexp_extract regexp_extract_all
regexp_full_match regexp_matches regexp_replace regexp_split_to_array replace reverse right right_grapheme rtrim sha1
sha256 split split_part starts_with str_split str_split_regex string_split string_split_regex string_to_array
strip_accents strlen strpos substr substring substring_grapheme suffix to_base64 translate trim ucase unbin unhex
unicode upper url_decode url_encode uuid_extract_version
"""
_TIMES = """
century date_add date_diff date_part date_sub date_trunc datediff datepart datesub datetrunc day dayname dayofmonth
dayofweek dayofyear days_in_month decade epoch epoch_ms epoch_ns epoch_us era hour isodow isoyear julian last_day
make_date make_time make_timestamp make_timestamp_ms make_timestamp_ns microsecond millennium millisecond minute month
monthname nanosecond quarter second strftime strptime time_bucket to_days to_hours to_microseconds to_milliseconds
to_minutes to_months to_quarters to_seconds to_weeks to_years try_strptime week weekday weekofyear year yearweek
"""
_NESTED = """
apply array_append array_apply array_cat array_concat array_contains array_distinct array_extract array_filter
array_has array_has_all array_has_any array_indexof array_intersect array_length array_pop_back array_pop_front
array_position array_prepend array_push_back array_push_front array_reduce array_reverse array_reverse_sort
array_select array_slice array_sort array_transform array_unique array_value array_where array_zip cardinality
element_at filter flatten from_json from_json_strict grade_up json_array json_array_length json_contains json_exists
json_extract json_extract_path json_extract_path_text json_extract_string json_keys json_merge_patch json_object
json_quote json_structure json_transform json_transform_strict json_type json_valid json_value len list_append
list_apply list_avg list_bit_and list_bit_or list_bit_xor list_bool_and list_bool_or list_cat list_concat
list_contains list_count list_distinct list_element list_extract list_filter list_first list_has list_has_all
list_has_any list_indexof list_intersect list_last list_max list_min list_pack list_position list_prepend list_product
list_reduce list_reverse list_reverse_sort list_select list_slice list_sort list_sum list_transform list_unique
list_value list_where list_zip map map_concat map_contains map_contains_entry map_contains_value map_entries
map_extract map_extract_value map_from_entries map_keys map_values reduce row row_to_json struct_concat
struct_contains struct_extract struct_insert struct_keys struct_pack struct_position struct_update struct_values
to_json
"""
_CONDITIONS = "if nullif typeof"

OPERATORS = frozenset(_OPERATORS.split())
FUNCTIONS = OPERATORS | frozenset(" ".join((_NUMBERS, _TEXTS, _TIMES, _NESTED, _CONDITIONS)).split())
BOUNDED: Mapping[str, int] = {"lpad": 1, "rpad": 1, "repeat": 1}
"""Functions whose argument at this position must be a literal whole number of at most LARGEST. They may not be nested
in each other nor in a function of GROWING, because memory limits do not cover their results.
"""
LARGEST = 256
GROWING = frozenset({"array_to_string", "regexp_replace", "replace"})
"""Functions that insert one text into another at many places, so a long text is multiplied."""
_MACROS = """
array_append array_pop_back array_pop_front array_prepend array_push_back array_push_front array_reverse
array_to_string date_add days_in_month if list_append list_avg list_bit_and list_bit_or list_bit_xor list_bool_and
list_bool_or list_count list_first list_last list_max list_min list_prepend list_product list_reverse list_sum
map_contains_entry map_contains_value md5_number_lower md5_number_upper nullif split_part
"""
DUCKDB_MACROS = frozenset(_MACROS.split())
"""DuckDB's macros over functions it calls CONSISTENT."""
