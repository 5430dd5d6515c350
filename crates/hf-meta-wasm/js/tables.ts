export { default } from "../build/tables.txt.xz";
