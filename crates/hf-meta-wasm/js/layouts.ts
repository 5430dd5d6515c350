export { default } from "../build/layouts.txt.xz";
